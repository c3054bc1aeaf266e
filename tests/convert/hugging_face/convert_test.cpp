#include "convert/hugging_face/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "config/check.h"
#include "convert/hugging_face/exported_model.h"
#include "convert/hugging_face/model_folder.h"
#include "convert/hugging_face/side_files.h"
#include "support/errors.h"
#include "support/latent_model.h"

namespace lyceum::hugging_face {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

Hosting smallest(const Config& config) { return first_exact_host(resolved(config)); }

/// Returns the message that says why no architecture can represent a model.
std::string nowhere(const Config& config) {
  return error_of([&] { smallest(config); }, ExitCode::usage);
}

/// Returns config.json of a model of this architecture.
Json described(const char* type) {
  constexpr std::array dense_ones{"llama", "qwen2", "qwen3"}, with_head_norms{"qwen3", "qwen3_moe", "dots1"};
  constexpr std::array with_whole_norms{"olmoe", "minimax_m2"};
  constexpr std::array sigmoid_ones{"glm4_moe", "dots1", "deepseek_v3", "kimi_k2", "minimax_m2"};
  constexpr std::array latent_ones{"deepseek_v2", "deepseek_v3", "kimi_k2"};
  const auto among = [&](const auto& names) { return std::ranges::find(names, std::string_view(type)) != names.end(); };
  Config config = among(dense_ones) ? dense() : sparse_model();
  config.moe.gates = Gates::renormalized;
  config.model.qkv_bias = named(type).type == "qwen2";
  if (among(with_head_norms)) config.model.qk_norm = QkNormKind::head;
  if (among(with_whole_norms)) config.model.qk_norm = QkNormKind::all;
  if (among(sigmoid_ones)) {
    config.moe.router = RouterKind::sigmoid;
    config.moe.routed_scale = named(type).type == "minimax_m2" ? 1 : 2.5;
  }
  if (named(type).type == "deepseek_v2") config.moe.gates = Gates::raw;
  if (among(latent_ones)) make_latent(config.model, 3);
  if (named(type).type == "gpt_oss") make_gpt_oss(config);
  const Hosting hosting = host(named(type), resolved(config));
  EXPECT_THAT(hosting.wrong, IsEmpty()) << type;
  return json_of(named(type), hosting.config);
}

std::string refusal(const char* type, Json json) {
  return error_of([&] { config_of(named(type), json); }, ExitCode::bad_input);
}

TEST(HuggingFace, ChoosesTheSmallestArchitecture) {
  EXPECT_EQ(smallest(dense()).architecture->type, "llama");
  Config config = sparse_model();
  config.moe.gates = Gates::renormalized;
  EXPECT_EQ(smallest(config).architecture->type, "mixtral");
  config.moe.gates = Gates::detached;
  config.moe.router = RouterKind::noisy;
  config.moe.capacity_factor = 1.5;
  config.moe.top_k_start = 4;
  EXPECT_EQ(smallest(config).architecture->type, "mixtral") << "the same model without training";
  config = dense();
  config.model.qkv_bias = true;
  EXPECT_EQ(smallest(config).architecture->type, "qwen2");
  config = sparse_model();
  EXPECT_EQ(smallest(config).architecture->type, "qwen2_moe") << "raw gates";
  config.model.qk_norm = QkNormKind::all;
  EXPECT_EQ(smallest(config).architecture->type, "olmoe");
  config.model.qk_norm = QkNormKind::head;
  EXPECT_EQ(smallest(config).architecture->type, "qwen3_moe");
  config.moe.router = RouterKind::sigmoid;
  EXPECT_EQ(smallest(config).architecture->type, "glm4_moe");
  config.model.positions.rotary_fraction = 0.5;
  config.moe.routed_scale = 2.5;
  EXPECT_EQ(smallest(config).architecture->type, "glm4_moe");
  config = dense();
  config.model.positions = {.scaling = RopeScalingKind::llama3, .factor = 8, .original_length = 8};
  EXPECT_EQ(smallest(config).architecture->type, "llama");
  config = sparse_model();
  make_latent(config.model, 0);
  EXPECT_EQ(smallest(config).architecture->type, "deepseek_v2");
  config.moe.router = RouterKind::sigmoid;
  EXPECT_EQ(smallest(config).architecture->type, "deepseek_v3");
  config.model.positions.layout = RopeLayout::half;
  EXPECT_EQ(smallest(config).architecture->type, "deepseek_v3") << "not kimi_k2, which transformers lacks";
}

TEST(HuggingFace, NamesTheKeysThatNoArchitectureHas) {
  Config config = sparse_model();
  config.moe.router = RouterKind::hash;
  EXPECT_THAT(nowhere(config), HasSubstr("moe.router = hash"));
  config = dense();
  config.model.ffn = Activation::gelu;
  EXPECT_THAT(nowhere(config), AllOf(HasSubstr("model.ffn = gelu"), HasSubstr("LlamaForCausalLM is the closest")));
  config = dense();
  config.model.attention_weights = AttentionWeights::stick_breaking;
  EXPECT_THAT(nowhere(config), HasSubstr("model.attention_weights = stick_breaking"));
  config = dense();
  config.model.positions.rotary_fraction = 0.5;
  EXPECT_THAT(nowhere(config), HasSubstr("model.rotary_fraction = 0.5"));
  config = dense();
  config.model.positions.layout = RopeLayout::interleaved;
  EXPECT_THAT(nowhere(config), HasSubstr("model.rope_layout = interleaved"));
  config = sparse_model();
  config.moe.routed_scale = 2;
  EXPECT_THAT(nowhere(config), HasSubstr("moe.routed_scale = 2"));
  config = sparse_model();
  config.moe.copy_experts = 1;
  EXPECT_THAT(nowhere(config), HasSubstr("moe.copy_experts = 1"));
  config = sparse_model();
  config.moe.latent_hidden = 4;
  EXPECT_THAT(nowhere(config), HasSubstr("moe.latent_hidden = 4"));
  config = dense();
  make_latent(config.model, 0);
  EXPECT_THAT(nowhere(config), HasSubstr("is the closest"));
  config = sparse_model();
  make_latent(config.model, 0);
  config.moe.router = RouterKind::sigmoid;
  config.model.latent.norm_eps = 1e-5;
  EXPECT_THAT(nowhere(config), HasSubstr("latent_attention.norm_eps = 1e-05"));
  config = dense();
  config.sub_dimensions.ffn = 2;
  config.sub_dimensions.active = 2;
  EXPECT_THAT(nowhere(config), HasSubstr("sub_dimensions.ffn = 2"));
}

TEST(HuggingFace, EveryDescriptionIsReadBack) {
  for (const Architecture& architecture : architectures()) {
    const Json json = described(std::string(architecture.type).c_str());
    Config config = config_of(architecture, json);
    resolve(config, 1);
    EXPECT_THAT(problems(config, 1), IsEmpty()) << architecture.type;
    EXPECT_EQ(json_of(architecture, config), json) << architecture.type;
    EXPECT_EQ(json["architectures"][0], architecture.model);
  }
}

TEST(HuggingFace, WhatLyceumHasNoModelForIsRefusedByName) {
  const auto with = [](const char* key, Json value) {
    Json json = described("llama");
    json[key] = std::move(value);
    return refusal("llama", json);
  };
  EXPECT_THAT(with("hidden_act", "gelu"), HasSubstr("hidden_act = \"gelu\""));
  EXPECT_THAT(with("mlp_bias", 2), HasSubstr("mlp_bias: "));
  EXPECT_THAT(with("hidden_size", nullptr), HasSubstr("hidden_size is null"));
  EXPECT_THAT(with("hidden_size", 8.5), HasSubstr("8.5 is not an integer"));
  EXPECT_THAT(with("vocab_size", "16"), HasSubstr("vocab_size: "));
  EXPECT_THAT(with("quantization_config", {{"bits", 4}}), HasSubstr("quantization_config = {\"bits\":4}"));
  EXPECT_THAT(with("num_attention_heads", 3), HasSubstr("num_attention_heads = 3 does not divide"));
  Json scores = described("deepseek");
  scores["scoring_func"] = "sigmoid";
  EXPECT_THAT(refusal("deepseek", scores), HasSubstr("scoring_func = \"sigmoid\""));
}

/// A window and its layers in Lyceum; json describes two layers of 64 tokens.
using Window = std::pair<std::int64_t, std::vector<std::int64_t>>;
Window window_in(const char* type, const Json& json) {
  const Config config = config_of(named(type), json);
  return {config.model.window, config.model.window_layers};
}

TEST(HuggingFace, WindowsAreThoseOfTheClass) {
  const auto with = [](const char* type, std::initializer_list<std::pair<const char*, Json>> keys) {
    Json json = described(type);
    for (const auto& [key, value] : keys) json[key] = value;
    return json;
  };
  const Json listed = Json::array({"full_attention", "sliding_attention"});
  const Json none = Json::array({"full_attention", "full_attention"});
  for (const char* type : {"mixtral", "qwen3_moe"}) {
    const auto windows = [&](int tokens) {
      Json json = with(type, {{"sliding_window", tokens}});
      if (json.contains("use_sliding_window")) json["use_sliding_window"] = true;
      return json;
    };
    EXPECT_EQ(window_in(type, windows(32)), Window(32, {}));
    EXPECT_EQ(window_in(type, windows(64)), Window(64, {})) << "as long as a sequence";
    EXPECT_EQ(window_in(type, windows(65)), Window(0, {})) << "longer than a sequence";
    EXPECT_THAT(refusal(type, with(type, {{"sliding_window", 32}, {"layer_types", listed}})),
                HasSubstr("layer_types has \"sliding_attention\": Lyceum supports full_attention only"));
  }
  EXPECT_EQ(window_in("qwen3_moe", with("qwen3_moe", {{"sliding_window", 32}})), Window(0, {})) << "not used";
  for (const char* type : {"qwen2", "qwen3"}) {
    const auto windows = [&](std::initializer_list<std::pair<const char*, Json>> keys) {
      Json json = with(type, keys);
      json["use_sliding_window"] = true;
      return json;
    };
    EXPECT_EQ(window_in(type, windows({{"sliding_window", 32}})), Window(0, {})) << "from layer 28 on";
    EXPECT_EQ(window_in(type, windows({{"sliding_window", 32}, {"max_window_layers", 1}})), Window(32, {0, 1}));
    EXPECT_EQ(window_in(type, windows({{"sliding_window", 32}, {"max_window_layers", 0}})), Window(32, {}));
    EXPECT_EQ(window_in(type, windows({{"sliding_window", 32}, {"max_window_layers", 0}, {"layer_types", listed}})),
              Window(32, {0, 1}));
    EXPECT_EQ(window_in(type, windows({{"sliding_window", 32}, {"max_window_layers", 0}, {"layer_types", none}})),
              Window(0, {}));
    EXPECT_THAT(refusal(type, windows({{"sliding_window", nullptr}})), HasSubstr("sliding_window is null"));
    EXPECT_THAT(refusal(type, windows({{"sliding_window", 0}, {"max_window_layers", 0}})),
                HasSubstr("sliding_window = 0: must be above 0"));
    EXPECT_THAT(refusal(type, with(type, {{"layer_types", listed}})), HasSubstr("use_sliding_window is not true"));
    EXPECT_THAT(refusal(type, windows({{"layer_types", Json::array({"full_attention"})}})),
                HasSubstr("layer_types does not have num_hidden_layers = 2 entries"));
    EXPECT_THAT(
        refusal(type, windows({{"layer_types", Json::array({"full_attention", "chunked_attention"})}})),
        HasSubstr("layer_types has \"chunked_attention\": Lyceum supports full_attention and sliding_attention"));
  }
  const auto moe = [&](std::initializer_list<std::pair<const char*, Json>> keys) {
    Json json = with("qwen2_moe", keys);
    json["use_sliding_window"] = true;
    return json;
  };
  EXPECT_EQ(window_in("qwen2_moe", moe({{"sliding_window", 32}})), Window(32, {1, 0}));
  EXPECT_EQ(window_in("qwen2_moe", moe({{"sliding_window", 32}, {"max_window_layers", 0}})), Window(0, {}));
  EXPECT_EQ(window_in("qwen2_moe", moe({{"sliding_window", 32}, {"layer_types", listed}})), Window(32, {0, 1}));
  EXPECT_EQ(window_in("dots1", with("dots1", {{"sliding_window", 32}})), Window(0, {})) << "from layer 62 on";
  EXPECT_EQ(window_in("dots1", with("dots1", {{"sliding_window", 32}, {"max_window_layers", 1}})), Window(32, {0, 1}));
}

TEST(HuggingFace, WindowsOfAnImpossibleNumberOfLayersAreRefused) {
  for (const std::int64_t layers : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 60}) {
    Json json = described("mixtral");
    json["sliding_window"] = 32;
    json["num_hidden_layers"] = layers;
    EXPECT_THAT(refusal("mixtral", json), HasSubstr("num_hidden_layers = " + std::to_string(layers)));
  }
}

TEST(HuggingFace, KeysOfPublishedModelsThatTheirClassIgnoresAreAccepted) {
  Json qwen = described("qwen3_moe");
  const std::string before = to_ini(config_of(named("qwen3_moe"), qwen));
  qwen["max_window_layers"] = 48;
  EXPECT_EQ(to_ini(config_of(named("qwen3_moe"), qwen)), before);
  qwen["use_sliding_window"] = true;
  qwen["sliding_window"] = 32;
  EXPECT_EQ(window_in("qwen3_moe", qwen), Window(32, {})) << "all layers, as in transformers";
  Json dots = described("dots1");
  const std::string same = to_ini(config_of(named("dots1"), dots));
  dots["scoring_func"] = "noaux_tc";
  dots["moe_layer_freq"] = 1;
  EXPECT_EQ(to_ini(config_of(named("dots1"), dots)), same);
  dots["moe_layer_freq"] = 2;
  EXPECT_THAT(refusal("dots1", dots), HasSubstr("moe_layer_freq = 2"));
}

TEST(HuggingFace, KeysThatDoNotDescribeAModelAreIgnored) {
  Json llama = described("llama");
  const std::string before = to_ini(config_of(named("llama"), llama));
  llama.update({{"_attn_implementation_autoset", true},
                {"unsloth_version", "2025.3.19"},
                {"transformers.js_config", {{"kv_cache_dtype", {{"q4f16", "float16"}}}}},
                {"temperature", 0.6},
                {"sep_token_id", 5},
                {"chunk_size_feed_forward", 0},
                {"layer_types", {"full_attention", "full_attention"}}});
  EXPECT_EQ(to_ini(config_of(named("llama"), llama)), before);
  const auto expect_refused = [&](const char* key, const Json& value) {
    Json odd = llama;
    odd[key] = value;
    EXPECT_THAT(refusal("llama", odd), HasSubstr(std::string(key) + " = "));
  };
  expect_refused("chunk_size_feed_forward", 64);
  expect_refused("layer_types", {"full_attention", "sliding_attention"});
  expect_refused("rope_interleaved", true);
}

TEST(HuggingFace, WindowsAreReadBack) {
  const auto wrong = [](const char* type, std::vector<std::int64_t> layers) {
    Config config = config_of(named(type), described(type));
    config.model.window = 16;
    config.model.window_layers = std::move(layers);
    return host(named(type), resolved(config)).wrong;
  };
  for (const char* type : {"qwen2", "qwen3", "qwen2_moe", "dots1"}) {
    for (const std::vector<std::int64_t>& layers : {std::vector<std::int64_t>{}, {1, 0}, {0, 1}, {1, 1}}) {
      EXPECT_THAT(wrong(type, layers), IsEmpty()) << type;
    }
  }
  for (const char* type : {"mixtral", "qwen3_moe"}) {
    EXPECT_THAT(wrong(type, {}), IsEmpty()) << type;
    EXPECT_THAT(wrong(type, {1, 0}), ElementsAre("model.window = 16", "model.window_layers = 1,0")) << type;
  }
  for (const char* type : {"llama", "glm4_moe"}) EXPECT_THAT(wrong(type, {}), ElementsAre("model.window = 16")) << type;
  for (const std::vector<std::int64_t>& layers : {std::vector<std::int64_t>{}, {1, 0}}) {
    Config whole = config_of(named("llama"), described("llama"));
    whole.model.window = whole.batch.seq_len;
    whole.model.window_layers = layers;
    EXPECT_THAT(host(named("llama"), resolved(whole)).wrong, IsEmpty()) << "a window as long as a sequence is none";
  }
  Config config = config_of(named("qwen2"), described("qwen2"));
  config.model.sinks = true;
  EXPECT_THAT(nowhere(config), HasSubstr("model.sinks = true"));
}

TEST(HuggingFace, LengthsOfTheModelOutliveShorterSequences) {
  Config imported = dense();
  imported.model.window = 32;
  imported.model.window_layers = {0, 1};
  Json side_files;
  keep_reach(imported, side_files);
  const auto restored = [&](std::int64_t seq_len, std::int64_t window) {
    Config config = dense();
    config.batch.seq_len = seq_len;
    config.model.window = window;
    restore_reach(side_files, config);
    return std::tuple(config.batch.seq_len, config.model.window, config.model.window_layers.size());
  };
  EXPECT_EQ(restored(16, 0), std::tuple(64, 32, 2));
  EXPECT_EQ(restored(16, 8), std::tuple(64, 8, 0));
  EXPECT_EQ(restored(48, 0), std::tuple(64, 0, 0));  // a run without a window
  EXPECT_EQ(restored(128, 0), std::tuple(128, 0, 0));
  side_files["config.json"]["model.layers"] = 3;
  EXPECT_EQ(restored(16, 0), std::tuple(64, 0, 0));
}

TEST(HuggingFace, AbsentKeysMeanWhatTheClassHas) {
  Json json = described("mixtral");
  for (const char* key : {"rope_theta", "rope_parameters", "num_key_value_heads", "head_dim", "rms_norm_eps"}) {
    json.erase(key);
  }
  const Config config = resolved(config_of(named("mixtral"), json));
  EXPECT_EQ(config.model.rope_base, 1e6);
  EXPECT_EQ(config.model.norm_eps, 1e-5);
  EXPECT_EQ(config.model.kv_heads, 8);
  EXPECT_EQ(config.model.head_dim, 4);
  json["num_key_value_heads"] = nullptr;
  EXPECT_EQ(resolved(config_of(named("mixtral"), json)).model.kv_heads, 2);
}

TEST(HuggingFace, AnExportIsImportedAgain) {
  Config config = sparse_model();
  config.model.first_dense_layers = 1;
  config.moe.shared_experts = 2;
  const Checkpoint checkpoint(config);
  checkpoint.exports(host(named("deepseek"), checkpoint.config()), {.shard_bytes = 1000});
  EXPECT_TRUE(fs::exists(checkpoint.target() / index_name));
  EXPECT_FALSE(fs::exists(checkpoint.target() / "model.safetensors"));
  EXPECT_THAT(checkpoint.exported("model.layers.1.mlp.shared_experts.up_proj.weight").front(), 1);
  checkpoint.expect_import_gives_it_back();
}

TEST(HuggingFace, NothingIsExportedThatIsNotFinite) {
  using Limits = std::numeric_limits<float>;
  const auto refusal = [](float odd, safetensors::Type type) {
    const Checkpoint checkpoint(dense(), odd);
    const Hosting hosting = host(named("llama"), checkpoint.config());
    const std::string error = error_of([&] { checkpoint.exports(hosting, {.type = type}); }, ExitCode::failed);
    EXPECT_FALSE(fs::exists(checkpoint.target()));
    EXPECT_FALSE(fs::exists(checkpoint.target().string() + ".partial"));
    return error;
  };
  for (const float odd : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
    EXPECT_THAT(refusal(odd, safetensors::Type::f32), HasSubstr("lm_head.weight is not finite: the checkpoint is"));
  }
  EXPECT_THAT(refusal(Limits::max(), safetensors::Type::bf16), HasSubstr("lm_head.weight exceeds the range of BF16"));
  const Checkpoint largest(dense(), Limits::max());
  largest.exports(host(named("llama"), largest.config()), {.type = safetensors::Type::f32});
  EXPECT_EQ(largest.exported("lm_head.weight")[3], Limits::max());
}

TEST(HuggingFace, UnevenExpertsArePadded) {
  Config config = sparse_model();
  config.moe.gates = Gates::renormalized;
  config.moe.expert_sizes = {2, 3, 3, 1};
  const Checkpoint checkpoint(config);
  const Hosting hosting = first_exact_host(checkpoint.config());
  EXPECT_THAT(hosting.notes, ElementsAre(HasSubstr("experts of 1 to 3 units to 3")));
  EXPECT_EQ(hosting.config.moe.expert_hidden, 3);
  checkpoint.exports(hosting);
  const std::string expert = "model.layers.1.block_sparse_moe.experts.0.";
  std::vector<float> up(3 * 8, 0.f), down(8 * 3, 0.f);
  std::iota(up.begin(), up.begin() + 2 * 8, 1.f);
  for (std::size_t row = 0; row < 8; ++row) {
    for (std::size_t column = 0; column < 2; ++column)
      down[row * 3 + column] = static_cast<float>(row * 2 + column + 1);
  }
  EXPECT_EQ(checkpoint.exported(expert + "w3.weight"), up);
  EXPECT_EQ(checkpoint.exported(expert + "w2.weight"), down);
}

TEST(HuggingFace, SharedExpertsGetAGateOfOneHalf) {
  Config config = sparse_model();
  config.moe.shared_experts = 2;
  const Checkpoint checkpoint(config);
  const Hosting hosting = first_exact_host(checkpoint.config());
  EXPECT_EQ(hosting.architecture->type, "qwen2_moe");
  checkpoint.exports(hosting);
  const std::string mlp = "model.layers.0.mlp.";
  EXPECT_EQ(checkpoint.exported(mlp + "shared_expert_gate.weight"), std::vector<float>(8, 0.f));
  EXPECT_THAT(checkpoint.exported(mlp + "shared_expert.down_proj.weight")[5], 2 * 6);
  EXPECT_THAT(checkpoint.exported(mlp + "shared_expert.up_proj.weight")[5], 6);
  EXPECT_THAT(checkpoint.exported(mlp + "experts.0.down_proj.weight")[5], 6);
}

TEST(HuggingFace, BiasesOfTheOutputAreAdded) {
  Config config = dense();
  config.model.qkv_bias = true;
  config.model.qk_norm = QkNormKind::head;
  const Checkpoint without(config);
  const Hosting hosting = first_exact_host(without.config());
  EXPECT_THAT(hosting.notes, ElementsAre(HasSubstr("a bias of 0 on o_proj")));
  without.exports(hosting);
  EXPECT_EQ(without.exported("model.layers.1.self_attn.o_proj.bias"), std::vector<float>(8, 0.f));
  config.model.o_bias = true;
  const Checkpoint with(config);
  with.exports(first_exact_host(with.config()));
  EXPECT_EQ(with.exported("model.layers.1.self_attn.o_proj.bias")[3], 4);
  with.expect_import_gives_it_back();
  config.model.qkv_bias = false;
  EXPECT_THAT(nowhere(config), HasSubstr("model.o_bias = true"));
}

TEST(HuggingFace, BiasesOfFfns) {
  Config config = dense();
  config.model.ffn_bias = true;
  const Checkpoint checkpoint(config);
  const Hosting hosting = first_exact_host(checkpoint.config());
  EXPECT_EQ(hosting.architecture->type, "llama");
  checkpoint.exports(hosting);
  checkpoint.expect_import_gives_it_back();
}

/// Returns a model that glm4_moe can represent, with two modules of multi-token prediction.
Config with_modules() {
  Config config = sparse_model();
  config.model.first_dense_layers = 1;
  config.moe.router = RouterKind::sigmoid;
  config.moe.gates = Gates::renormalized;
  config.moe.shared_experts = 1;
  config.mtp.depth = 2;
  return config;
}

TEST(HuggingFace, ModulesAreLayersBehindTheModel) {
  const Checkpoint checkpoint(with_modules());
  const Hosting hosting = first_exact_host(checkpoint.config());
  EXPECT_EQ(hosting.architecture->type, "glm4_moe");
  EXPECT_THAT(hosting.notes, IsEmpty());
  EXPECT_EQ(json_of(*hosting.architecture, hosting.config)["num_nextn_predict_layers"], 2);
  checkpoint.exports(hosting);
  std::vector<float> ascending(16);
  std::iota(ascending.begin(), ascending.end(), 1.f);
  for (const std::string layer : {"model.layers.2.", "model.layers.3."}) {
    for (const char* norm : {"enorm", "hnorm", "shared_head.norm", "input_layernorm", "post_attention_layernorm"}) {
      EXPECT_EQ(checkpoint.exported(layer + norm + ".weight"),
                std::vector<float>(ascending.begin(), ascending.begin() + 8));
    }
    const std::vector<float> projection = checkpoint.exported(layer + "eh_proj.weight");
    ASSERT_EQ(projection.size(), 8u * 16);
    EXPECT_TRUE(std::equal(ascending.begin() + 8, ascending.end(), projection.begin())) << "columns of the embedding";
    EXPECT_TRUE(std::equal(ascending.begin(), ascending.begin() + 8, projection.begin() + 8)) << "of the hidden state";
    EXPECT_EQ(checkpoint.exported(layer + "mlp.gate.e_score_correction_bias").size(), 4u);
    EXPECT_EQ(checkpoint.exported(layer + "embed_tokens.weight"), checkpoint.exported("model.embed_tokens.weight"));
    EXPECT_EQ(checkpoint.exported(layer + "shared_head.head.weight"), checkpoint.exported("lm_head.weight"));
  }
  checkpoint.expect_import_gives_it_back();
}

/// Modules have the tensors of any block: biases and norms of queries and keys.
TEST(HuggingFace, ModulesHaveEveryTensorOfABlock) {
  Config config = with_modules();
  config.model.qkv_bias = true;
  config.model.qk_norm = QkNormKind::head;
  const Checkpoint checkpoint(config);
  checkpoint.exports(host(named("glm4_moe"), checkpoint.config()));
  for (const std::string layer : {"model.layers.1.", "model.layers.2.", "model.layers.3."}) {
    EXPECT_EQ(checkpoint.exported(layer + "self_attn.q_norm.weight").size(), 4u);
    EXPECT_EQ(checkpoint.exported(layer + "self_attn.k_proj.bias").size(), 4u);
  }
  checkpoint.expect_import_gives_it_back();
}

/// Modules with latent attention, as DeepSeek-V3 has them.
TEST(HuggingFace, ModulesOfLatentAttention) {
  Config config = with_modules();
  make_latent(config.model, 3);
  const Checkpoint checkpoint(config);
  const Hosting hosting = first_exact_host(checkpoint.config());
  EXPECT_EQ(hosting.architecture->type, "deepseek_v3");
  EXPECT_THAT(hosting.notes, IsEmpty());
  checkpoint.exports(hosting);
  EXPECT_EQ(checkpoint.exported("model.layers.2.self_attn.kv_a_layernorm.weight").size(),
            static_cast<std::size_t>(config.model.latent.key_value_rank));
  checkpoint.expect_import_gives_it_back();
}

TEST(HuggingFace, ModulesMayBeLeftOut) {
  const Checkpoint checkpoint(with_modules());
  checkpoint.exports(first_exact_host(checkpoint.config()));
  const ModelFolder model(checkpoint.target());
  LoadedConfig wanted{.config = model.config()};
  EXPECT_EQ(wanted.config.mtp.depth, 2);
  wanted.config.mtp.depth = 0;
  for (const NewRun::Weights& tensor : import_run(model, wanted).tensors) {
    EXPECT_FALSE(tensor.name.starts_with("model/mtp/")) << tensor.name;
  }
  wanted.config.mtp.depth = 3;
  expect_bad_input([&] { import_run(model, wanted); }, "has no tensor model.layers.4.");
  Config config = dense();
  config.mtp.depth = 1;
  const Hosting llama = smallest(config);
  EXPECT_EQ(llama.architecture->type, "llama");
  EXPECT_THAT(llama.notes, ElementsAre(HasSubstr("left out   modules of multi-token prediction")));
  EXPECT_EQ(llama.config.mtp.depth, 0);
}

TEST(HuggingFace, CopiesOfSharedTensorsMustBeEqual) {
  for (const bool tied : {false, true}) {
    Config config = with_modules();
    config.model.tie_embeddings = tied;
    const Checkpoint checkpoint(config);
    checkpoint.exports(first_exact_host(checkpoint.config()));
    checkpoint.expect_import_gives_it_back();
    const auto changed = [&](const std::string& name) {
      std::vector<safetensors::Entry> entries;
      std::vector<std::vector<float>> values;
      {
        const ModelFolder model(checkpoint.target());
        for (const auto& [each, tensor] : model.tensors()) {
          entries.push_back({.name = each, .shape = tensor.entry->shape});
          values.emplace_back(static_cast<std::size_t>(tensor.entry->shape.size()));
          tensor.read(values.back());
          if (each == name) values.back()[5] += 1;
        }
      }
      const fs::path file = checkpoint.target() / weights_name;
      fs::remove(file);
      safetensors::Writer writer(file, entries);
      for (const std::vector<float>& each : values) writer.write(each);
      writer.finish();
    };
    const auto import = [&] {
      const ModelFolder model(checkpoint.target());
      import_run(model, {.config = model.config()});
    };
    changed("model.layers.3.shared_head.head.weight");
    expect_bad_input(import, tied ? "model.layers.3.shared_head.head.weight differs from model.embed_tokens.weight"
                                  : "model.layers.3.shared_head.head.weight differs from lm_head.weight");
    const ModelFolder model(checkpoint.target());
    LoadedConfig without{.config = model.config()};
    without.config.mtp = {};
    import_run(model, without);
    changed("model.layers.2.embed_tokens.weight");
    expect_bad_input(import, "model.layers.");
    expect_bad_input(import, "--mtp.depth=0");
  }
}

TEST(HuggingFace, AFolderThatIsNotWholeIsRefused) {
  const Checkpoint checkpoint(dense());
  const Hosting hosting = first_exact_host(checkpoint.config());
  checkpoint.exports(hosting);
  const fs::path folder = checkpoint.target(), weights = folder / "model.safetensors", json = folder / "config.json";
  const auto import = [&] {
    const ModelFolder model(folder);
    import_run(model, {.config = model.config()});
  };
  const auto rewritten = [&](const char* key, const Json& value) {
    Json changed = json_of(*hosting.architecture, hosting.config);
    changed[key] = value;
    std::ofstream(json) << changed;
  };
  rewritten("num_hidden_layers", 3);
  expect_bad_input(import, "has no tensor model.layers.2.input_layernorm.weight");
  rewritten("num_hidden_layers", 1);
  expect_bad_input(import, "Lyceum's models have no tensor model.layers.1.");
  rewritten("num_hidden_layers", 9999);
  expect_bad_input(import, "9999 layers");
  rewritten("intermediate_size", 13);
  expect_bad_input(import, "_proj.weight has the shape [12, 8], but the configuration requires [13, 8]");
  rewritten("model_type", "bert");
  expect_bad_input(import, "model_type = \"bert\": must be one of qwen2, llama");
  rewritten("vocab_size", 16);
  import();
  fs::rename(weights, folder / "model-1.safetensors");
  expect_bad_input(import, "has neither model.safetensors nor");
  std::ofstream(folder / index_name) << R"({"weight_map":{"a":"../model-1.safetensors"}})";
  expect_bad_input(import, "which is not a file of the same folder");
  fs::remove(json);
  expect_bad_input(import, "config.json does not exist");
}

/// A folder with a dense model, in which each test changes something.
class Weights : public testing::Test {
 protected:
  using Tensors = std::map<std::string, std::vector<float>>;

  Weights() {
    checkpoint_.exports(first_exact_host(checkpoint_.config()));
    const ModelFolder model(folder_);
    for (const auto& [name, tensor] : model.tensors()) {
      values_[name].resize(static_cast<std::size_t>(tensor.entry->shape.size()));
      tensor.read(values_[name]);
      shapes_[name] = tensor.entry->shape;
    }
    fs::remove(folder_ / weights_name);
  }

  void write(const char* file, const std::vector<std::string>& names) {
    std::vector<safetensors::Entry> entries;
    for (const std::string& name : names) entries.push_back({.name = name, .shape = shapes_.at(name)});
    safetensors::Writer writer(folder_ / file, entries);
    for (const std::string& name : names) writer.write(values_.at(name));
    writer.finish();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, values] : values_) all.push_back(name);
    return all;
  }
  void write_index(const std::map<std::string, std::string>& files) {
    std::ofstream(folder_ / index_name) << Json{{"weight_map", files}};
  }
  void set(const char* key, const Json& value) {
    Json json = read_object(folder_ / config_name);
    json[key] = value;
    std::ofstream(folder_ / config_name) << json;
  }
  /// Reads all values.
  Tensors import() const {
    const ModelFolder model(folder_);
    Tensors read;
    for (const NewRun::Weights& tensor : import_run(model, {.config = model.config()}).tensors) {
      read[tensor.name].resize(static_cast<std::size_t>(tensor.shape.size()));
      tensor.make(read[tensor.name]);
    }
    return read;
  }
  void expect_refused(const char* why) {
    expect_bad_input([&] { import(); }, why);
  }

  Checkpoint checkpoint_{dense()};
  fs::path folder_ = checkpoint_.target();
  Tensors values_;
  std::map<std::string, Shape> shapes_;
};

TEST_F(Weights, OfATiedHeadMustBeTheEmbedding) {
  set("tie_word_embeddings", true);
  values_["lm_head.weight"] = values_["model.embed_tokens.weight"];
  write(weights_name, names());
  EXPECT_FALSE(import().contains("lm_head/weight"));
  values_["lm_head.weight"][3] += 1;
  write(weights_name, names());
  expect_refused("lm_head.weight differs from model.embed_tokens.weight, but config.json has tie_word_embeddings");
  set("tie_word_embeddings", false);
  EXPECT_EQ(import().at("lm_head/weight"), values_["lm_head.weight"]);
}

TEST_F(Weights, OfASingleFileComeBeforeThoseOfAnIndex) {
  write("model-1.safetensors", names());
  std::map<std::string, std::string> files;
  for (const std::string& name : names()) files[name] = "model-1.safetensors";
  write_index(files);
  EXPECT_EQ(import().at("model/norm/weight"), values_["model.norm.weight"]);
  values_["model.norm.weight"][0] = 42;
  write(weights_name, names());
  EXPECT_EQ(import().at("model/norm/weight")[0], 42);
}

TEST_F(Weights, AreWhereTheIndexSays) {
  const std::vector<std::string> all = names(), first(all.begin(), all.begin() + 4), rest(all.begin() + 4, all.end());
  std::map<std::string, std::string> files;
  for (const std::string& name : all) files[name] = "b.safetensors";
  for (const std::string& name : first) files[name] = "a.safetensors";
  write("a.safetensors", first);
  write("b.safetensors", rest);
  write_index(files);
  EXPECT_EQ(import().size(), all.size());
  std::swap(files[first[0]], files[rest[0]]);
  write_index(files);
  expect_refused("has no tensor lm_head.weight, although ");
  std::swap(files[first[0]], files[rest[0]]);
  files.erase(rest[1]);
  write_index(files);
  expect_refused("index.json does not name");
  files[rest[1]] = "b.safetensors";
  write_index(files);
  write("b.safetensors", all);
  expect_refused("which another file also has");
  fs::remove(folder_ / "b.safetensors");
  expect_refused("b.safetensors");
}

TEST_F(Weights, MustBeFinite) {
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Tensors& values = values_;
    const float before = std::exchange(values["model.layers.1.mlp.up_proj.weight"][5], wrong);
    write(weights_name, names());
    expect_refused("model.layers.1.mlp.up_proj.weight is not finite: element 5 is ");
    values["model.layers.1.mlp.up_proj.weight"][5] = before;
  }
}

TEST_F(Weights, OfAnAdapterAreRefused) {
  write(weights_name, names());
  std::ofstream(folder_ / "adapter_config.json") << "{}";
  expect_refused("adapter_config.json: the folder holds an adapter");
}

// In the cache of a model hub, a snapshot consists of links to blobs.
TEST_F(Weights, AreFoundThroughLinks) {
  write(weights_name, names());
  const fs::path blobs = folder_.parent_path() / "blobs";
  fs::create_directory(blobs);
  for (const char* name : {config_name, weights_name}) {
    fs::rename(folder_ / name, blobs / (name[0] == 'c' ? "5b1c9d" : "77aa01"));
    fs::create_symlink(fs::path("../blobs") / (name[0] == 'c' ? "5b1c9d" : "77aa01"), folder_ / name);
  }
  EXPECT_EQ(import().size(), values_.size());
}

// An incomplete download in the cache of a model hub.
TEST_F(Weights, AndOtherFilesMayNotBeLinksToNothing) {
  write(weights_name, names());
  for (const char* name : {"generation_config.json", "chat_template.jinja", "tokenizer.json", index_name}) {
    const fs::path file = folder_ / name;
    fs::remove(file);
    fs::create_symlink("../blobs/absent", file);
    expect_bad_input([&] { has_file(file); }, std::string(name) + " is a link to a file that does not exist");
    std::vector<std::string> notes;
    if (fs::path(name).stem() == "tokenizer") {
      expect_bad_input([&] { find_tokenizer_file(ModelFolder(folder_), notes); }, "tokenizer.json is a link");
    } else if (name != std::string(index_name)) {
      expect_bad_input([&] { side_files_of(folder_); }, std::string(name) + " is a link");
    }
    fs::remove(file);
  }
  fs::create_symlink("loop", folder_ / "loop");
  expect_bad_input([&] { has_file(folder_ / "loop"); }, "loop cannot be read: it is a symbolic link");
  fs::remove(folder_ / weights_name);
  fs::create_symlink("../blobs/absent", folder_ / weights_name);
  expect_refused("model.safetensors is a link to a file that does not exist");
}

/// A folder with a tokenizer of the tokens a and <s>, and other files that list tokens.
class ListedTokens : public Weights {
 protected:
  ListedTokens() { write(weights_name, names()); }
  static Json added(const char* content, int id) {
    return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
            {"rstrip", false}, {"normalized", false}, {"special", true}};
  }
  void put(const char* name, const Json& json) { std::ofstream(folder_ / name) << json; }
  /// Returns the first line of the import about the tokenizer; empty if it was found.
  std::string note(const Json& config, const Json& special = {}, const Json& more = {}) {
    put("tokenizer.json", {{"version", "1.0"},
                           {"added_tokens", {added("</s>", 1)}},
                           {"normalizer", nullptr},
                           {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                           {"decoder", {{"type", "ByteLevel"}}},
                           {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", Json::array()}}}});
    put("tokenizer_config.json", config);
    put("special_tokens_map.json", special.is_null() ? Json::object() : special);
    put("added_tokens.json", more.is_null() ? Json::object() : more);
    std::vector<std::string> notes;
    const bool found = !find_tokenizer_file(ModelFolder(folder_), notes).empty();
    EXPECT_EQ(found, notes.empty());
    return notes.empty() ? "" : notes.front();
  }
};

TEST_F(ListedTokens, MayBeThoseOfTheTokenizer) {
  const Json listed{{"added_tokens_decoder", {{"1", added("</s>", 1)}}}};
  EXPECT_EQ(note({{"eos_token", "</s>"}, {"add_bos_token", true}, {"pad_token", nullptr}}, {}, {{"</s>", 1}}), "");
  EXPECT_EQ(note({{"eos_token", {{"content", "</s>"}, {"rstrip", true}}}, {"extra_special_tokens", {"</s>"}}}), "");
  EXPECT_EQ(note({{"extra_special_tokens", Json::object()}, {"additional_special_tokens", nullptr}}), "");
  EXPECT_EQ(note(listed, {{"pad_token", "<pad>"}}, {{"<x>", 2}}), "");  // not read by transformers either
}

TEST_F(ListedTokens, ThatTheTokenizerLacksAreNamed) {
  const auto lacks = [](const char* token, const char* file) {
    return HasSubstr(std::string("tokenizer.json does not have the added token ") + token + " of " + file + ": load ");
  };
  EXPECT_THAT(note({{"added_tokens_decoder", {{"1", added("</s>", 1)}, {"2", added("<x>", 2)}}}}),
              lacks("<x> (2)", "tokenizer_config.json"));
  EXPECT_THAT(note({{"added_tokens_decoder", {{"2", added("</s>", 2)}}}}), lacks("</s> (2)", "tokenizer_config.json"));
  EXPECT_THAT(note({{"pad_token", "a"}}), lacks("a", "tokenizer_config.json"));
  EXPECT_THAT(note({{"image_token", {{"content", "<x>"}}}}), lacks("<x>", "tokenizer_config.json"));
  EXPECT_THAT(note({{"extra_special_tokens", {"</s>", "<x>"}}}), lacks("<x>", "tokenizer_config.json"));
  EXPECT_THAT(note({{"extra_special_tokens", {{"name", "<x>"}}}}), lacks("<x>", "tokenizer_config.json"));
  EXPECT_THAT(note(Json::object(), {{"additional_special_tokens", {"<x>"}}}), lacks("<x>", "special_tokens_map.json"));
  EXPECT_THAT(note(Json::object(), {}, {{"<x>", 2}}), lacks("<x> (2)", "added_tokens.json"));
  Json stripped = added("</s>", 1);
  stripped["rstrip"] = true;
  EXPECT_THAT(
      note({{"added_tokens_decoder", {{"1", stripped}}}}),
      HasSubstr("tokenizer.json has rstrip = false for the added token </s> (1) of tokenizer_config.json, which "
                "has true: load "));
  EXPECT_THAT(note({{"split_special_tokens", true}}),
              HasSubstr("tokenizer_config.json has split_special_tokens = true"));
  EXPECT_THAT(note({{"added_tokens_decoder", {{"x", added("</s>", 1)}}}}), HasSubstr("added_tokens_decoder: "));
}

TEST(HuggingFace, RolesOfTokensAreThoseOfTransformers) {
  Json files{{"tokenizer_config.json", {{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}}},
             {"special_tokens_map.json", {{"bos_token", {{"content", "<b>"}}}}}};
  EXPECT_EQ(bos_token_of(files), "<b>");
  EXPECT_EQ(eos_token_of(files), "</s>");
  files["tokenizer_config.json"]["added_tokens_decoder"] = Json::object();
  EXPECT_EQ(bos_token_of(files), "<s>");
}

TEST_F(ListedTokens, AreKeptWithOtherChatTemplates) {
  put("added_tokens.json", {{"</s>", 1}});
  fs::create_directory(folder_ / "additional_chat_templates");
  std::ofstream(folder_ / "additional_chat_templates/tools.jinja") << "{{ tools }}";
  const SideFiles kept = exported_side_files(side_files_of(folder_), {}, nullptr, "");
  EXPECT_EQ(Json::parse(kept.files.at("added_tokens.json")), Json({{"</s>", 1}}));
  EXPECT_EQ(kept.files.at("additional_chat_templates/tools.jinja"), "{{ tools }}");
}

TEST_F(Weights, AreDescribedByTheLastOfEqualKeys) {
  write(weights_name, names());
  std::string text = read_object(folder_ / config_name).dump();
  text.insert(1, R"("rms_norm_eps":0.25,)");
  std::ofstream(folder_ / config_name) << text;
  EXPECT_EQ(ModelFolder(folder_).config().model.norm_eps, dense().model.norm_eps);
}

}  // namespace
}  // namespace lyceum::hugging_face
