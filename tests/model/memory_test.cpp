#include "model/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "model/counts.h"
#include "support/tiny_run.h"

namespace lyceum {
namespace {

TEST(LeastMemory, HoldsTheParametersThatAreCounted) {
  Config config = tiny_config();
  for (const bool tied : {false, true}) {
    for (const std::int64_t experts : {9, 0}) {
      config.model.tie_embeddings = tied;
      config.moe.experts = experts;
      if (experts == 0) config.moe = {};
      Config resolved = config;
      resolve(resolved, 1);
      const auto parameters = static_cast<double>(count_model(resolved).parameters);
      EXPECT_DOUBLE_EQ(least_memory(resolved, 1, false).total(), 4 * parameters);
      resolved.run.precision = "bf16";
      EXPECT_DOUBLE_EQ(least_memory(resolved, 1, true).optimizer, 12 * parameters);
    }
    config = tiny_config();
  }
}

TEST(LeastMemory, SharesOutRoutedExpertsAlone) {
  Config config = tiny_config();
  resolve(config, 1);
  const double one = least_memory(config, 1, false).weights;
  config.parallel.expert = 4;
  const double routed = 4.0 * 2 * 3 * 24 * 92;  // bytes, layers, matrices, hidden, Σ widths
  EXPECT_DOUBLE_EQ(one - least_memory(config, 1, false).weights, routed * 3 / 4);
}

TEST(LeastMemory, DividesWhatZeroSharesOutAmongCopies) {
  Config config = tiny_config();
  config.parallel.expert = 4;
  resolve(config, 8);
  const MemoryNeed whole = least_memory(config, 8, true);
  const double experts = 4.0 * 2 * 3 * 24 * 92 / 4;  // bytes of a rank: layers, matrices, hidden, Σ widths, ranks
  const auto shared_out = [&](double bytes) { return (bytes - experts) / 8 + experts / 2; };
  for (int stage = 0; stage <= 3; ++stage) {
    config.parallel.zero = stage;
    const MemoryNeed need = least_memory(config, 8, true);
    EXPECT_DOUBLE_EQ(need.weights, stage == 3 ? shared_out(whole.weights) : whole.weights);
    EXPECT_DOUBLE_EQ(need.gradients, stage >= 2 ? shared_out(whole.gradients) : whole.gradients);
    EXPECT_DOUBLE_EQ(need.optimizer, stage >= 1 ? 2 * shared_out(whole.optimizer / 2) : whole.optimizer);
    EXPECT_DOUBLE_EQ(least_memory(config, 8, false).weights, whole.weights);
  }
}

TEST(LeastMemory, SharesOutMatricesOverTensorRanks) {
  Config config = tiny_config();
  config.batch.micro = 2;
  resolve(config, 1);
  const MemoryNeed one = least_memory(config, 6, true);
  config.parallel.tensor = 2;
  const double whole = 4.0 * (24 + 3 * 2 * 24 + 2 * 9 * 24);  // bytes: final norm, norms, routers
  const double routed = 4.0 * 2 * 3 * 24 * 92;
  EXPECT_DOUBLE_EQ(least_memory(config, 6, true).weights, whole + routed + (one.weights - whole - routed) / 2);
  const double logits = 4.0 * 24 * 61, inputs = 4.0 * 24 * 3 * 24;  // bytes, tokens, words or layers · hidden
  EXPECT_DOUBLE_EQ(least_memory(config, 6, true).activations, logits / 2 + inputs);
  config.parallel.sequence = true;
  EXPECT_DOUBLE_EQ(least_memory(config, 6, true).activations, logits / 2 + inputs / 2);
  config.parallel.expert = 3;
  config.parallel.expert_tensor = 2;
  EXPECT_DOUBLE_EQ(least_memory(config, 6, true).weights, whole + routed / 6 + (one.weights - whole - routed) / 2);
}

TEST(LeastMemory, TellsKindsAndWaysOutOfImpossibleSizes) {
  Config config = tiny_config();
  resolve(config, 1);
  const MemoryNeed need = least_memory(config, 1, true);
  EXPECT_NO_THROW(require_fits(need, config, need.total(), 1));
  config.model.hidden = config.model.layers = config.moe.experts = config.moe.expert_hidden = 2147483647;
  config.moe.expert_sizes.clear();
  try {
    require_fits(least_memory(config, 1, true), config, 24e9, 2);
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("EB a rank (weights "), testing::HasSubstr(" 24 GB "),
                               testing::HasSubstr("parallel.expert"), testing::HasSubstr("model.hidden"),
                               testing::Not(testing::HasSubstr("-")), testing::Not(testing::HasSubstr("inf"))));
  }
  config = tiny_config();
  config.batch.seq_len = 2147483647;
  resolve(config, 1);
  try {
    require_fits(least_memory(config, 1, true), config, 24e9, 1);
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("lower batch.micro"));
  }
}

}  // namespace
}  // namespace lyceum
