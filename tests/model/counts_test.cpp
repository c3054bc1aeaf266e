#include "model/counts.h"

#include <gtest/gtest.h>

#include "io/config_check.h"
#include "model/transformer.h"
#include "support/tiny_run.h"

namespace lyceum {
namespace {

struct PaperModel {
  const char* name;
  std::int64_t layers, hidden, heads, shared, experts, top_k, width, vocab, first_dense, ffn, seq_len;
  double parameters, activated, flops;  // DeepSeekMoE's tables, as printed there
};

/// Tables 1, 2, 6 and 7 of DeepSeekMoE.
class PaperModels : public testing::TestWithParam<PaperModel> {};

TEST_P(PaperModels, HaveTheSizesOfThePaper) {
  const PaperModel& paper = GetParam();
  Config config;
  config.model = {.layers = paper.layers,
                  .hidden = paper.hidden,
                  .heads = paper.heads,
                  .head_dim = 128,
                  .ffn_hidden = paper.ffn,
                  .vocab = paper.vocab,
                  .first_dense_layers = paper.first_dense};
  config.moe.experts = paper.experts;
  config.moe.shared_experts = paper.shared;
  config.moe.top_k = paper.top_k;
  config.moe.expert_hidden = paper.width;
  config.batch.seq_len = paper.seq_len;
  resolve(config, 1);
  const ModelCounts counts = count_model(config);
  EXPECT_NEAR(static_cast<double>(counts.parameters), paper.parameters, 0.05e9 + 0.01 * paper.parameters);
  EXPECT_NEAR(static_cast<double>(counts.activated), paper.activated, 0.05e9 + 0.02 * paper.activated);
  EXPECT_NEAR(counts.flops_per_sequence, paper.flops, 0.025 * paper.flops);
}

INSTANTIATE_TEST_SUITE_P(
    DeepSeekMoE, PaperModels,
    testing::Values(
        PaperModel{"dense", 9, 1280, 10, 0, 0, 1, 0, 8192, 0, 3413, 2048, 0.2e9, 0.2e9, 2.9e12},
        PaperModel{"switch", 9, 1280, 10, 0, 16, 1, 3413, 8192, 0, 3413, 2048, 2.0e9, 0.2e9, 2.9e12},
        PaperModel{"gshard", 9, 1280, 10, 0, 16, 2, 3413, 8192, 0, 3413, 2048, 2.0e9, 0.3e9, 4.3e12},
        PaperModel{"deepseekmoe_2b", 9, 1280, 10, 1, 63, 7, 853, 8192, 0, 3413, 2048, 2.0e9, 0.3e9, 4.3e12},
        PaperModel{"deepseekmoe_16b", 28, 2048, 16, 2, 64, 6, 1408, 102400, 1, 10944, 4096, 16.4e9, 2.8e9, 74.4e12},
        PaperModel{"deepseekmoe_145b", 62, 4096, 32, 4, 128, 12, 1408, 102400, 1, 10944, 4096, 144.6e9, 22.2e9,
                   585.6e12},
        PaperModel{"gshard_137b", 62, 4096, 32, 0, 16, 2, 10923, 102400, 1, 10944, 4096, 136.5e9, 21.6e9, 572.7e12}),
    [](const auto& info) { return info.param.name; });

TEST(ModelCounts, AreThoseOfTheModelThatIsBuilt) {
  for (const bool tied : {false, true}) {
    Config config = tiny_config();
    config.moe.expert_sizes.clear();
    config.model.tie_embeddings = tied;
    resolve(config, 1);
    const auto setup = make_setup(ProcessGroup::self(), {});
    const Transformer model(config, setup->stream, setup->mesh, DType::f32, false);
    std::int64_t built = 0;
    for (const auto& unit : model.units()) {
      for (const auto& parameter : unit->parameters()) built += parameter->shape.size();
    }
    EXPECT_EQ(count_model(config).parameters, built);
  }
}

}  // namespace
}  // namespace lyceum
