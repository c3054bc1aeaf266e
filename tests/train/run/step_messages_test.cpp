// The number of messages that a rank sends in a step, from rehearsals.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/tiny_run.h"
#include "train/run/preflight.h"

namespace lyceum {
namespace {

/// Returns the messages of the busiest of some ranks in a step: those near the root of trees, in the middle, and the
/// last.
std::int64_t most_messages(Config config, int ranks) {
  resolve(config, ranks);
  require_none(problems(config, ranks));
  const TinyData data(config.model.vocab);
  const TokenLoader loader = data.loader(config);
  std::int64_t most = 0;
  for (const int rank : {0, 1, 2, 5, ranks / 4, ranks / 2, ranks / 2 + 1, ranks - 1}) {
    most = std::max(most, messages_of_step(config, loader, rank, ranks));
  }
  return most;
}

/// Expects that each factor of four, from 16 to 1024 ranks, adds at most half of the messages of 16 ranks, which are
/// two such factors. Messages between all pairs of ranks would add three times the messages of 16 ranks at the first.
template <class ConfigFor>
void expect_logarithmic_growth(const ConfigFor& config_for) {
  std::vector<std::int64_t> most;
  for (const int ranks : {16, 64, 256, 1024}) most.push_back(most_messages(config_for(ranks), ranks));
  const auto text = testing::PrintToString(most);
  for (std::size_t i = 1; i < most.size(); ++i) {
    EXPECT_GT(most[i], most[i - 1]) << text;
    EXPECT_LE(most[i] - most[i - 1], most[0] / 2) << text;
  }
}

TEST(StepMessages, OfDataRanksGrowWithTheLogarithmOfTheirNumber) {
  for (const int zero : {0, 1, 2, 3}) {
    expect_logarithmic_growth([&](int ranks) {
      Config config = tiny_config();
      config.batch.global = ranks;
      config.moe.experts = 40;  // their loads have more than 1 MiB on all ranks together
      config.moe.expert_sizes.clear();
      config.parallel.zero = zero;
      return config;
    });
  }
}

TEST(StepMessages, OfTensorRanksGrowWithTheLogarithmOfTheirNumber) {
  for (const bool sequence : {false, true}) {
    expect_logarithmic_growth([&](int ranks) {
      Config config = tiny_config();
      config.parallel.tensor = ranks;
      config.parallel.sequence = sequence;
      // A model for 1024 ranks: one that grows with the ranks would also send more chunks of gradients.
      config.model.heads = config.model.kv_heads = 1024;
      config.model.head_dim = 2;
      config.model.hidden = 16;
      config.model.ffn_hidden = 1024;
      config.model.vocab = 2048;
      config.moe.experts = 4;
      config.moe.expert_sizes.clear();
      config.moe.expert_hidden = 1024;
      config.batch = {.global = 1, .micro = 1, .seq_len = 16};
      return config;
    });
  }
}

}  // namespace
}  // namespace lyceum
