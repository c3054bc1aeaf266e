#include "convert/hugging_face/architecture.h"

#include <boost/algorithm/string/replace.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "convert/hugging_face/fields.h"
#include "convert/hugging_face/latent_fields.h"
#include "convert/hugging_face/modules.h"
#include "convert/hugging_face/positions.h"
#include "io/text/json.h"
#include "model/sublayer_tensor.h"

namespace lyceum::hugging_face {

namespace {

/// Keys that have no influence on what a model computes at inference. They are ignored.
constexpr std::array without_meaning{"architectures",
                                     "model_type",
                                     "transformers_version",
                                     "torch_dtype",
                                     "dtype",
                                     "use_cache",
                                     "bos_token_id",
                                     "eos_token_id",
                                     "pad_token_id",
                                     "attention_dropout",
                                     "output_router_logits",
                                     "aux_loss_alpha",
                                     "router_aux_loss_coef",
                                     "seq_aux",
                                     "router_jitter_noise",
                                     "pretraining_tp",
                                     "auto_map",
                                     "_name_or_path",
                                     "ep_size",
                                     "initializer_range",
                                     "tokenizer_class",
                                     "return_dict",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "id2label",
                                     "label2id",
                                     "problem_type",
                                     "num_labels",
                                     "sep_token_id",
                                     "model_max_length",
                                     "max_length",
                                     "do_sample",
                                     "temperature",
                                     "top_k",
                                     "top_p",
                                     "attn_implementation",
                                     "_attn_implementation",
                                     "_attn_implementation_autoset",
                                     "unsloth_version",
                                     "unsloth_fixed",
                                     "is_llama_config",
                                     "transformers.js_config"};

/// True if a key that the class does not have cannot change what the model computes.
bool is_harmless(const std::string& key, const Json& value) {
  if (std::ranges::find(without_meaning, key) != without_meaning.end() || value.is_null() || value == false)
    return true;
  if (key == "chunk_size_feed_forward") return value == 0;
  return key == "layer_types" && value.is_array() &&
         std::ranges::all_of(value, [](const Json& type) { return type == "full_attention"; });
}

std::vector<Field> operator+(std::vector<Field> fields, std::vector<Field> more) {
  std::ranges::move(more, std::back_inserter(fields));
  return fields;
}

/// The values of a model class for keys that config.json does not have. `null_kv_heads`: num_key_value_heads may be
/// null, which means as many as num_attention_heads (0 in a Config).
struct Absent {
  double norm_eps;
  RotaryClass rotary = {};
  std::int64_t kv_heads = 0;
  bool null_kv_heads = true;
};

std::vector<Field> any_model(const Absent& absent) {
  return {same("vocab_size", &Config::model, &ModelConfig::vocab),
          same("hidden_size", &Config::model, &ModelConfig::hidden),
          same("num_hidden_layers", &Config::model, &ModelConfig::layers),
          same("num_attention_heads", &Config::model, &ModelConfig::heads),
          same("num_key_value_heads", &Config::model, &ModelConfig::kv_heads, absent.kv_heads,
               absent.null_kv_heads ? std::optional<std::int64_t>(0) : std::nullopt),
          same("max_position_embeddings", &Config::batch, &BatchConfig::seq_len),
          same("rms_norm_eps", &Config::model, &ModelConfig::norm_eps, absent.norm_eps),
          same("initializer_range", &Config::model, &ModelConfig::init_std, 0.02),
          same("tie_word_embeddings", &Config::model, &ModelConfig::tie_embeddings, false),
          only("hidden_act", "silu", "silu"),
          required("is_causal", true),
          rotary_positions(absent.rotary)};
}

/// `absent` is the class's value without the key. 0 means hidden_size / num_attention_heads; null means the same,
/// unless the class requires a number.
Field head_dim(std::int64_t absent = 0) {
  return same("head_dim", &Config::model, &ModelConfig::head_dim, absent,
              absent == 0 ? std::optional<std::int64_t>(0) : std::nullopt);
}
Field dense_width() { return same("intermediate_size", &Config::model, &ModelConfig::ffn_hidden); }
/// `alias` is another name of the key, which takes precedence.
Field experts(std::string_view key, std::string_view alias = {}) {
  Field field = same(key, &Config::moe, &MoeConfig::experts);
  if (alias.empty()) return field;
  field.keys.push_back(alias);
  field.read = [read = std::move(field.read), other = same(alias, &Config::moe, &MoeConfig::experts).read, alias](
                   const Json& json, Config& config) {
    (json.contains(std::string(alias)) ? other : read)(json, config);
  };
  return field;
}
Field top_k() { return same("num_experts_per_tok", &Config::moe, &MoeConfig::top_k); }
Field expert_width(std::string_view key = "moe_intermediate_size") {
  return same(key, &Config::moe, &MoeConfig::expert_hidden);
}

/// attention_bias: biases of the projections to queries, keys and values, and of the output projection if `output`.
Field bias(bool output = true, bool absent = false) {
  Field field = same("attention_bias", &Config::model, &ModelConfig::qkv_bias, absent);
  if (!output) return field;
  field.read = [read = std::move(field.read)](const Json& json, Config& config) {
    read(json, config);
    config.model.o_bias = config.model.qkv_bias;
  };
  return field;
}
Field norm(QkNormKind kind) { return always(&Config::model, &ModelConfig::qk_norm, kind); }
Field shared_experts() { return same("n_shared_experts", &Config::moe, &MoeConfig::shared_experts, 0, 0); }
Field dense_layers_counted(std::int64_t absent) {
  return same("first_k_dense_replace", &Config::model, &ModelConfig::first_dense_layers, absent);
}

/// The values of a class with mixtures like those of DeepSeek-V3 for keys that config.json does not have: number of
/// shared experts, number of dense layers, whether the gates are divided by their sum, their factor, and groups.
struct AbsentExperts {
  std::int64_t shared, dense;
  bool sum;
  double scale = 1;
  std::int64_t groups = 1, chosen_groups = 1;
};
/// Returns the fields of mixtures like those of DeepSeek-V3.
std::vector<Field> sigmoid_experts(const AbsentExperts& absent) {
  return {dense_width(),
          expert_width(),
          experts("n_routed_experts", "num_local_experts"),
          top_k(),
          always(&Config::moe, &MoeConfig::router, RouterKind::sigmoid),
          gates({.absent = absent.sum}),
          expert_groups(absent.groups, absent.chosen_groups),
          required_shared_experts(absent.shared),
          dense_layers_counted(absent.dense),
          same("routed_scaling_factor", &Config::moe, &MoeConfig::routed_scale, absent.scale)};
}

std::vector<Field> deepseek_v3_fields() {
  return any_model({.norm_eps = 1e-6, .kv_heads = 128}) +
         sigmoid_experts({.shared = 1, .dense = 3, .sum = true, .scale = 2.5, .groups = 8, .chosen_groups = 4}) +
         latent_attention() +
         std::vector<Field>{interleaved_positions("rope_interleave"), prediction_modules(),
                            only("scoring_func", "sigmoid", "sigmoid"), only("topk_method", "noaux_tc", "noaux_tc")};
}

/// The rotary positions of gpt_oss if config.json has none.
Json gpt_oss_positions() {
  return {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
          {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
}

std::vector<Architecture> make_architectures() {
  return {
      {.type = "qwen2",
       .model = "Qwen2ForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-6, .kv_heads = 32}) +
                 std::vector<Field>{head_dim(), dense_width(), always(&Config::model, &ModelConfig::qkv_bias, true),
                                    window({.first_absent = 28})},
       .renames = {}},
      {.type = "llama",
       .model = "LlamaForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-6}) +
                 std::vector<Field>{head_dim(), heads_divide(), dense_width(), bias(),
                                    same("mlp_bias", &Config::model, &ModelConfig::ffn_bias, false)},
       .renames = {}},
      {.type = "qwen3",
       .model = "Qwen3ForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-6, .kv_heads = 32}) + std::vector<Field>{head_dim(128), dense_width(),
                                                                                    bias(), norm(QkNormKind::head),
                                                                                    window({.first_absent = 28})},
       .renames = {}},
      {.type = "mixtral",
       .model = "MixtralForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-5, .rotary = {.base = 1e6}, .kv_heads = 8}) +
                 std::vector<Field>{head_dim(), expert_width("intermediate_size"),
                                    experts("num_local_experts", "num_experts"), top_k(),
                                    always(&Config::moe, &MoeConfig::gates, Gates::renormalized),
                                    window({.optional = false, .listed = false, .absent = {}})},
       .renames =
           {{".mlp.", ".block_sparse_moe."}, {".gate_proj.", ".w1."}, {".down_proj.", ".w2."}, {".up_proj.", ".w3."}}},
      {.type = "deepseek",
       .model = "DeepseekForCausalLM",
       .native = false,
       .fields = any_model({.norm_eps = 1e-6}) +
                 std::vector<Field>{dense_width(), expert_width(), experts("n_routed_experts"), top_k(),
                                    gates({.of_several = true}), shared_experts(), dense_layers_counted(0), bias(),
                                    only("moe_layer_freq", 1, 1), only("scoring_func", "softmax", "softmax")},
       .renames = {}},
      {.type = "qwen3_moe",
       .model = "Qwen3MoeForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-6, .kv_heads = 4, .null_kv_heads = false}) +
                 std::vector<Field>{head_dim(), dense_width(), expert_width(),
                                    experts("num_experts", "num_local_experts"), top_k(), gates(),
                                    dense_layers_listed(), bias(), norm(QkNormKind::head), window({.listed = false})},
       .renames = {}},
      {.type = "olmoe",
       .model = "OlmoeForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-5}) + std::vector<Field>{expert_width("intermediate_size"),
                                                                    experts("num_experts", "num_local_experts"),
                                                                    top_k(), gates(), bias(), norm(QkNormKind::all),
                                                                    only("clip_qkv", nullptr, nullptr)},
       .renames = {}},
      {.type = "qwen2_moe",
       .model = "Qwen2MoeForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-6, .kv_heads = 16, .null_kv_heads = false}) +
                 std::vector<Field>{head_dim(), dense_width(), expert_width(), experts("num_experts"), top_k(), gates(),
                                    dense_layers_listed(), shared_width(),
                                    always(&Config::moe, &MoeConfig::shared_gate, true),
                                    same("qkv_bias", &Config::model, &ModelConfig::qkv_bias, true),
                                    window({.first_absent = 28, .alternating = true})},
       .renames = {{".shared_experts.", ".shared_expert."}}},
      {.type = "glm4_moe",
       .model = "Glm4MoeForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-5,
                            .rotary = {.partial = true, .fraction = 0.5},
                            .kv_heads = 8,
                            .null_kv_heads = false}) +
                 sigmoid_experts({.shared = 1, .dense = 1, .sum = true}) +
                 std::vector<Field>{head_dim(), bias(false), optional_qk_norm(), prediction_modules()},
       .renames = {}},
      {.type = "dots1",
       .model = "Dots1ForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-6, .kv_heads = 32}) +
                 sigmoid_experts({.shared = 0, .dense = 0, .sum = false}) +
                 std::vector<Field>{head_dim(), bias(), norm(QkNormKind::head),
                                    window({.optional = false, .first_absent = 62}),
                                    // Keys of the published models that transformers does not read.
                                    required("scoring_func", "noaux_tc"), required("moe_layer_freq", 1)},
       .renames = {}},
      {.type = "deepseek_v2",
       .model = "DeepseekV2ForCausalLM",
       .native = true,
       .fields =
           any_model({.norm_eps = 1e-6}) +
           std::vector<Field>{heads_divide(), dense_width(), expert_width(), experts("n_routed_experts", "num_experts"),
                              top_k(), always(&Config::moe, &MoeConfig::router, RouterKind::softmax),
                              always(&Config::moe, &MoeConfig::gates, Gates::raw), only("norm_topk_prob", false, false),
                              greedy_groups(), required_shared_experts(2), dense_layers_counted(0),
                              same("routed_scaling_factor", &Config::moe, &MoeConfig::routed_scale, 1.0)} +
           latent_attention() +
           std::vector<Field>{interleaved_positions(), only("mlp_bias", false, false),
                              only("scoring_func", "softmax", "softmax")},
       .renames = {}},
      {.type = "deepseek_v3",
       .model = "DeepseekV3ForCausalLM",
       .native = true,
       .fields = deepseek_v3_fields(),
       .renames = {}},
      {.type = "kimi_k2",
       .model = "DeepseekV3ForCausalLM",
       .native = false,
       .fields = deepseek_v3_fields(),
       .renames = {}},
      {.type = "gpt_oss",
       .model = "GptOssForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-5,
                            .rotary = {.base = 150000, .positions = gpt_oss_positions()},
                            .kv_heads = 8,
                            .null_kv_heads = false}) +
                 std::vector<Field>{head_dim(64), expert_width("intermediate_size"),
                                    experts("num_local_experts", "num_experts"), top_k(),
                                    always(&Config::moe, &MoeConfig::gates, Gates::renormalized),
                                    always(&Config::moe, &MoeConfig::router_bias, true), bias(true, true),
                                    always(&Config::model, &ModelConfig::sinks, true),
                                    always(&Config::model, &ModelConfig::ffn, Activation::clamped_swiglu),
                                    always(&Config::model, &ModelConfig::ffn_bias, true),
                                    same("swiglu_alpha", &Config::model, &ModelConfig::swiglu_alpha, 1.702),
                                    same("swiglu_limit", &Config::model, &ModelConfig::swiglu_limit, 7.0),
                                    window({.optional = false, .absent = 128, .alternating = true}),
                                    unread("initial_context_length"), unread("experts_per_token"), mxfp4()},
       .renames = {{".gate.", ".router."}},
       .stacked_experts = true},
      {.type = "minimax_m2",
       .model = "MiniMaxM2ForCausalLM",
       .native = true,
       .fields =
           any_model(
               {.norm_eps = 1e-6, .rotary = {.base = 5e6, .partial = true}, .kv_heads = 8, .null_kv_heads = false}) +
           std::vector<Field>{head_dim(128), expert_width("intermediate_size"),
                              experts("num_local_experts", "num_experts"), top_k(),
                              always(&Config::moe, &MoeConfig::router, RouterKind::sigmoid),
                              always(&Config::moe, &MoeConfig::gates, Gates::renormalized), norm(QkNormKind::all),
                              rotary_width(), attention_kinds(),
                              // Keys of the published models that transformers does not read.
                              required("qk_norm_type", "per_layer"), required("scoring_func", "sigmoid"),
                              required("shared_intermediate_size", 0), required("use_qk_norm", true),
                              required("use_routing_bias", true), unread("mlp_intermediate_size"),
                              unread("mtp_transformer_layers"), unread("num_mtp_modules"), unread("use_mtp"),
                              unread("shared_moe_mode")},
       .renames = {{".mlp.", ".block_sparse_moe."},
                   {".gate_proj.", ".w1."},
                   {".down_proj.", ".w2."},
                   {".up_proj.", ".w3."},
                   {".gate.e_score_correction_bias", ".e_score_correction_bias"}}},
  };
}

}  // namespace

std::span<const Architecture> architectures() {
  static const std::vector<Architecture> all = make_architectures();
  return all;
}

const Architecture* find_architecture(std::string_view type) {
  const auto found = std::ranges::find(architectures(), type, &Architecture::type);
  return found == architectures().end() ? nullptr : &*found;
}

Config config_of(const Architecture& architecture, const Json& json) {
  Config config;
  for (const Field& field : architecture.fields) field.read(json, config);
  for (const auto& [key, value] : json.items()) {
    const bool known = std::ranges::any_of(architecture.fields, [&](const Field& field) {
      return std::ranges::find(field.keys, key) != field.keys.end();
    });
    require_input(known || is_harmless(key, value),
                  "{} = {} is not a supported key of {}: Lyceum may not be able to compute this model", excerpt(key),
                  excerpt(json_text(value)), architecture.type);
  }
  return config;
}

Json json_of(const Architecture& architecture, const Config& resolved) {
  Json json{{"architectures", {architecture.model}}, {"model_type", architecture.type}};
  for (const Field& field : architecture.fields) field.write(resolved, json);
  return json;
}

std::string name_in_transformers(const Architecture& architecture, const ModelConfig& model, const std::string& ours) {
  std::string name = layer_name_of_module(model, ours);
  std::ranges::replace(name, '/', '.');
  for (const auto& [own, theirs] : architecture.renames) boost::replace_all(name, own, theirs);
  return name;
}

}  // namespace lyceum::hugging_face
