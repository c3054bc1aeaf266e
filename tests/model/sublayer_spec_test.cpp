#include "model/sublayer_spec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/model_tensors.h"
#include "model/transformer.h"
#include "support/latent_model.h"
#include "support/tiny_run.h"

namespace lyceum {
namespace {

struct Variant {
  std::string name;
  Config config;
};

Variant variant(const std::string& name, const std::function<void(Config&)>& change) {
  Config config = tiny_config();
  change(config);
  resolve(config, 1);
  return {name, std::move(config)};
}

/// Every kind of attention and FFN, with all optional tensors.
std::vector<Variant> variants() {
  return {variant("heads", [](Config&) {}),
          variant("biases, norms of heads",
                  [](Config& config) {
                    config.model.qkv_bias = config.moe.shared_gate = true;
                    config.model.qk_norm = QkNormKind::head;
                    config.moe.latent_hidden = 10;
                    config.moe.router = RouterKind::sigmoid;
                  }),
          variant("norms of all heads, sticks, GELU",
                  [](Config& config) {
                    config.model.qk_norm = QkNormKind::all;
                    config.model.attention_weights = AttentionWeights::stick_breaking;
                    config.model.ffn = Activation::gelu;
                    config.moe.router = RouterKind::noisy;
                    config.moe.zero_experts = config.moe.copy_experts = 1;
                  }),
          variant("attention experts",
                  [](Config& config) {
                    config.model.attention = AttentionKind::experts;
                    config.attention_experts = {.count = 3, .top_k = 2, .gates = {}};
                    config.moe.router = RouterKind::mlp;
                  }),
          variant("sub-dimensions",
                  [](Config& config) {
                    config.moe = {};
                    config.sub_dimensions = {.attention = 4, .ffn = 6, .active = 3, .shared = 1, .fusion_width = 4};
                  }),
          variant("shared experts alone",
                  [](Config& config) {
                    config.moe.experts = 0;
                    config.moe.expert_sizes = {};
                  }),
          variant("some rotary columns", [](Config& config) { config.model.positions.rotary_fraction = 0.5; }),
          variant("windows and sinks",
                  [](Config& config) {
                    config.model.window = 5;
                    config.model.window_layers = {1, 0};
                    config.model.sinks = true;
                  }),
          variant("latents", [](Config& config) { make_latent(config.model, 0); }),
          variant("latents of queries in windows",
                  [](Config& config) {
                    make_latent(config.model, 5);
                    config.model.window = 5;
                  }),
          variant("biases of all projections", [](Config& config) {
            config.model.qkv_bias = config.model.o_bias = config.model.ffn_bias = true;
            config.model.ffn = Activation::clamped_swiglu;
            config.moe.router = RouterKind::sigmoid;
            config.moe.router_bias = true;
            config.moe.latent_hidden = 10;
          })};
}

/// Returns names and shapes of the tensors that half of a block declares.
std::map<std::string, Shape> declared(const SublayerSpec& spec) {
  std::map<std::string, Shape> tensors;
  for (const SublayerTensor& tensor : spec.tensors) {
    if (tensor.choices.count == 0) tensors[spec.prefix() + "/" + tensor.name] = tensor.shape;
    for (std::int64_t e = tensor.choices.first; e < tensor.choices.end(); ++e) {
      tensors[spec.prefix() + "/" + expert_tensor_name(e, tensor.name)] = tensor.shape;
    }
  }
  return tensors;
}

TEST(SublayerSpec, DeclaresTheTensorsThatTheModelHas) {
  for (const auto& [name, config] : variants()) {
    std::map<std::string, Shape> built, all;
    for (const ModelTensor& tensor : model_tensors(config)) {
      if (tensor.name.find("/self_attn/") != std::string::npos || tensor.name.find("/mlp/") != std::string::npos) {
        built[tensor.name] = tensor.shape;
      }
    }
    for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
      all.merge(declared(attention_spec(config, layer)));
      all.merge(declared(ffn_spec(config, layer)));
    }
    EXPECT_EQ(all, built) << name;
  }
}

/// The names are written out here because checkpoints of older versions contain them.
TEST(SublayerSpec, NamesTensorsAsCheckpointsDo) {
  const auto names = [](const SublayerSpec& spec) {
    std::set<std::string> set;
    for (const auto& [name, shape] : declared(spec)) set.insert(name.substr(spec.prefix().size() + 1));
    return set;
  };
  using Names = std::set<std::string>;
  const std::vector<Variant> all = variants();
  EXPECT_EQ(attention_spec(all[0].config, 2).prefix(), "model/layers/2/self_attn");
  EXPECT_EQ(names(attention_spec(all[0].config, 0)),
            (Names{"q_proj/weight", "k_proj/weight", "v_proj/weight", "o_proj/weight"}));
  EXPECT_EQ(names(ffn_spec(all[0].config, 0)), (Names{"gate_proj/weight", "up_proj/weight", "down_proj/weight"}));
  EXPECT_EQ(names(attention_spec(all[1].config, 0)),
            (Names{"q_proj/weight", "k_proj/weight", "v_proj/weight", "o_proj/weight", "q_proj/bias", "k_proj/bias",
                   "v_proj/bias", "q_norm/weight", "k_norm/weight"}));
  Names experts{"gate/weight",
                "gate/e_score_correction_bias",
                "shared_expert_gate/weight",
                "latent/down/weight",
                "latent/up/weight",
                "shared_experts/gate_proj/weight",
                "shared_experts/up_proj/weight",
                "shared_experts/down_proj/weight"};
  for (int e = 0; e < 9; ++e) {
    for (const char* name : {"gate_proj/weight", "up_proj/weight", "down_proj/weight"}) {
      experts.insert("experts/" + std::to_string(e) + "/" + name);
    }
  }
  EXPECT_EQ(names(ffn_spec(all[1].config, 1)), experts);
  EXPECT_EQ(names(attention_spec(all[3].config, 0)),
            (Names{"gate/in/weight", "gate/weight", "k_proj/weight", "v_proj/weight", "experts/0/q_proj/weight",
                   "experts/0/o_proj/weight", "experts/1/q_proj/weight", "experts/1/o_proj/weight",
                   "experts/2/q_proj/weight", "experts/2/o_proj/weight"}));
  EXPECT_EQ(names(ffn_spec(all[4].config, 0)), (Names{"gate/weight", "fusion/in/weight", "fusion/out/weight",
                                                      "gate_proj/weight", "up_proj/weight", "down_proj/weight"}));
  EXPECT_EQ(names(ffn_spec(all[5].config, 1)), (Names{"gate_proj/weight", "up_proj/weight", "down_proj/weight"}));
  EXPECT_EQ(names(attention_spec(all[7].config, 0)),
            (Names{"q_proj/weight", "k_proj/weight", "v_proj/weight", "o_proj/weight", "sinks"}));
  EXPECT_EQ(names(attention_spec(all[8].config, 0)),
            (Names{"q_proj/weight", "kv_a_proj_with_mqa/weight", "kv_a_layernorm/weight", "kv_b_proj/weight",
                   "o_proj/weight"}));
  EXPECT_EQ(names(attention_spec(all[9].config, 0)),
            (Names{"q_a_proj/weight", "q_a_layernorm/weight", "q_b_proj/weight", "kv_a_proj_with_mqa/weight",
                   "kv_a_layernorm/weight", "kv_b_proj/weight", "o_proj/weight"}));
}

TEST(SublayerSpec, DeclaresUnitsAndWeightDecay) {
  const std::vector<Variant> all = variants();
  const auto units = [](const SublayerSpec& spec) {
    std::map<std::string, std::pair<TensorUnit, bool>> map;  // name → unit, and true if weight decay applies
    for (const SublayerTensor& tensor : spec.tensors) map[tensor.name] = {tensor.unit(), tensor.decays()};
    return map;
  };
  auto latents = units(attention_spec(all[9].config, 0));
  EXPECT_EQ(latents["q_a_proj/weight"], std::pair(TensorUnit::replicated, true));
  EXPECT_EQ(latents["kv_a_layernorm/weight"], std::pair(TensorUnit::replicated, false));
  EXPECT_EQ(latents["kv_b_proj/weight"], std::pair(TensorUnit::dense, true));
  auto heads = units(attention_spec(all[1].config, 0)), all_heads = units(attention_spec(all[2].config, 0));
  auto ffn = units(ffn_spec(all[1].config, 1)), sub_dimensions = units(ffn_spec(all[4].config, 1));
  EXPECT_EQ(heads["q_proj/weight"], std::pair(TensorUnit::dense, true));
  EXPECT_EQ(heads["q_proj/bias"], std::pair(TensorUnit::dense, false));
  EXPECT_EQ(heads["q_norm/weight"], std::pair(TensorUnit::replicated, false)) << "of a head";
  EXPECT_EQ(units(attention_spec(all[6].config, 0))["sinks"], std::pair(TensorUnit::dense, false));
  EXPECT_EQ(all_heads["q_norm/weight"], std::pair(TensorUnit::dense, false)) << "of all heads";
  EXPECT_EQ(ffn["gate/weight"], std::pair(TensorUnit::replicated, true));
  EXPECT_EQ(ffn["gate/e_score_correction_bias"], std::pair(TensorUnit::untrained, false));
  EXPECT_EQ(ffn["shared_experts/down_proj/weight"], std::pair(TensorUnit::dense, true));
  EXPECT_EQ(ffn["down_proj/weight"], std::pair(TensorUnit::experts, true)) << "of routed experts";
  EXPECT_EQ(sub_dimensions["fusion/in/weight"], std::pair(TensorUnit::replicated, true));
}

TEST(SublayerSpec, CachesTakeWhatTheyDeclare) {
  for (const auto& [name, config] : variants()) {
    const auto setup = make_setup(ProcessGroup::self(), {});
    Transformer model(config, setup->stream, setup->mesh, DType::f32, false);
    model.initialize(1);
    std::vector<KeyValueCache> caches = model.new_caches(config.batch.seq_len);
    const std::vector<std::int32_t> prompt{3, 1};
    model.next_logits(prompt, caches);
    for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
      const KeyValueCache& cache = caches[static_cast<std::size_t>(layer)];
      const AttentionCosts costs = attention_spec(config, layer).costs;
      const std::int64_t positions = costs.window > 0 ? costs.window : config.batch.seq_len;
      EXPECT_EQ(cache.keys.size() + cache.values.size(), positions * costs.cache_width) << name << ", layer " << layer;
    }
  }
}

TEST(SublayerSpec, CostsOfAttentionByHand) {
  const auto costs = [](const Variant& of) { return attention_spec(of.config, 0).costs; };
  const std::vector<Variant> all = variants();  // four query heads and two key heads of six elements
  EXPECT_EQ(costs(all[0]).score_width, 24);
  EXPECT_EQ(costs(all[0]).value_width, 24);
  EXPECT_EQ(costs(all[0]).cache_width, 24);
  EXPECT_EQ(position_table_shape(all[0].config), (Shape{12, 6}));
  EXPECT_EQ(position_table_shape(all[2].config).size(), 0) << "sticks have no positions";
  EXPECT_EQ(position_table_shape(all[6].config), (Shape{12, 4})) << "half of six columns, rounded up to pairs";
  EXPECT_EQ(costs(all[6]).cache_width, 24);
  EXPECT_EQ(costs(all[3]).score_width, 48) << "two of three experts";
  EXPECT_EQ(costs(all[3]).cache_width, 24) << "which share keys and values";
  // Four heads of 4 + 2 elements of queries and keys and 5 of values; a latent of 7 elements
  EXPECT_EQ(costs(all[8]).score_width, 24);
  EXPECT_EQ(costs(all[8]).value_width, 20);
  EXPECT_EQ(costs(all[8]).cache_width, 9);
  EXPECT_FALSE(costs(all[8]).cache_is_cut);
  EXPECT_EQ(costs(all[8]).repeated_parameters, 4 * (4 + 5) * 7);
  EXPECT_EQ(costs(all[9]).repeated_parameters, 4 * (4 + 5) * 7 + 4 * (4 + 2) * 5);
  EXPECT_EQ(position_table_shape(all[8].config), (Shape{12, 2}));
  EXPECT_EQ(costs(all[0]).window, 0);
  for (const std::int64_t layer : {0, 1, 2}) {
    EXPECT_EQ(attention_spec(all[7].config, layer).costs.window, layer == 1 ? 0 : 5) << layer;
  }
}

}  // namespace
}  // namespace lyceum
