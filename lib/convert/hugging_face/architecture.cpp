#include "convert/hugging_face/architecture.h"

#include <boost/algorithm/string/replace.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "convert/hugging_face/fields.h"
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
                                     "problem_type"};

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

Field bias() { return same("attention_bias", &Config::model, &ModelConfig::qkv_bias, false); }
Field norm(QkNormKind kind) { return always(&Config::model, &ModelConfig::qk_norm, kind); }
Field shared_experts() { return same("n_shared_experts", &Config::moe, &MoeConfig::shared_experts, 0, 0); }
Field dense_layers_counted(std::int64_t absent) {
  return same("first_k_dense_replace", &Config::model, &ModelConfig::first_dense_layers, absent);
}

/// Returns the fields of mixtures like those of DeepSeek-V3. The parameters are the class's values without the keys:
/// number of shared experts, number of dense layers, and whether the gates are divided by their sum.
std::vector<Field> sigmoid_experts(std::int64_t shared, std::int64_t dense, bool sum) {
  return {dense_width(),
          expert_width(),
          experts("n_routed_experts", "num_local_experts"),
          top_k(),
          always(&Config::moe, &MoeConfig::router, RouterKind::sigmoid),
          gates({.absent = sum}),
          expert_groups(),
          required_shared_experts(shared),
          dense_layers_counted(dense),
          same("routed_scaling_factor", &Config::moe, &MoeConfig::routed_scale, 1.0)};
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
                 std::vector<Field>{head_dim(), heads_divide(), dense_width(), bias(), only("mlp_bias", false, false)},
       .renames = {},
       .output_bias = true},
      {.type = "qwen3",
       .model = "Qwen3ForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-6, .kv_heads = 32}) + std::vector<Field>{head_dim(128), dense_width(),
                                                                                    bias(), norm(QkNormKind::head),
                                                                                    window({.first_absent = 28})},
       .renames = {},
       .output_bias = true},
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
       .renames = {},
       .output_bias = true},
      {.type = "qwen3_moe",
       .model = "Qwen3MoeForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-6, .kv_heads = 4, .null_kv_heads = false}) +
                 std::vector<Field>{head_dim(), dense_width(), expert_width(),
                                    experts("num_experts", "num_local_experts"), top_k(), gates(),
                                    dense_layers_listed(), bias(), norm(QkNormKind::head), window({.listed = false})},
       .renames = {},
       .output_bias = true},
      {.type = "olmoe",
       .model = "OlmoeForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-5}) + std::vector<Field>{expert_width("intermediate_size"),
                                                                    experts("num_experts", "num_local_experts"),
                                                                    top_k(), gates(), bias(), norm(QkNormKind::all),
                                                                    only("clip_qkv", nullptr, nullptr)},
       .renames = {},
       .output_bias = true},
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
                 sigmoid_experts(1, 1, true) +
                 std::vector<Field>{head_dim(), bias(), optional_qk_norm(), prediction_modules()},
       .renames = {}},
      {.type = "dots1",
       .model = "Dots1ForCausalLM",
       .native = true,
       .fields = any_model({.norm_eps = 1e-6, .kv_heads = 32}) + sigmoid_experts(0, 0, false) +
                 std::vector<Field>{head_dim(), bias(), norm(QkNormKind::head),
                                    window({.optional = false, .first_absent = 62}),
                                    // Keys of the published models that transformers does not read.
                                    required("scoring_func", "noaux_tc"), required("moe_layer_freq", 1)},
       .renames = {},
       .output_bias = true},
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
    const bool known = std::ranges::find(without_meaning, key) != without_meaning.end() ||
                       std::ranges::any_of(architecture.fields, [&](const Field& field) {
                         return std::ranges::find(field.keys, key) != field.keys.end();
                       });
    require_input(known || value.is_null() || value == false,
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

std::string output_bias_name(const Architecture& architecture, const ModelConfig& model, std::int64_t layer) {
  return name_in_transformers(architecture, model,
                              half_prefix(block_prefix(model, layer), Site::attention) + "/o_proj/bias");
}

}  // namespace lyceum::hugging_face
