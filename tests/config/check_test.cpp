#include "config/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "config/binding.h"
#include "core/error.h"
#include "core/gpu.h"

namespace lyceum {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// Possible on 1, 2, 4 and 8 ranks.
Config sparse() {
  Config config;
  config.moe.experts = 15;
  config.moe.top_k = 3;
  config.moe.shared_experts = 1;
  config.moe.expert_hidden = 64;
  return config;
}

struct Impossible {
  std::function<void(Config&)> change;
  std::vector<std::string> told;  // in the one problem that this makes
  int world = 4;
};

void expect_each_told(const std::vector<Impossible>& cases,
                      std::vector<std::string> (*tell)(const Config&, int) = problems) {
  for (const Impossible& impossible : cases) {
    Config config = sparse();
    ASSERT_THAT(tell(config, impossible.world), IsEmpty());
    impossible.change(config);
    for (const bool resolved : {false, true}) {
      if (resolved) resolve(config, impossible.world);
      const std::vector<std::string> found = tell(config, impossible.world);
      ASSERT_EQ(found.size(), 1u) << impossible.told.front() << " … " << testing::PrintToString(found);
      for (const std::string& text : impossible.told) EXPECT_THAT(found.front(), HasSubstr(text));
    }
  }
}

TEST(ConfigProblems, impossible_models_are_told) {
  expect_each_told({
      {[](Config& c) { c.model.hidden = 250; }, {"model.heads = 4 does not divide model.hidden = 250"}},
      {[](Config& c) { c.model.hidden = 252; }, {"heads have the odd width 63", "model.head_dim", "RoPE"}},
      {[](Config& c) { c.model.head_dim = 63; }, {"heads have the odd width 63"}},
      {[](Config& c) { c.model.kv_heads = 3; }, {"model.kv_heads = 3 does not divide model.heads = 4"}},
      {[](Config& c) { c.model.kv_heads = 8; }, {"model.kv_heads = 8 does not divide model.heads = 4"}},
      {[](Config& c) { c.model.first_dense_layers = 5; }, {"model.first_dense_layers = 5", "model.layers = 4"}},
      {[](Config& c) { c.model.head_dim = 5; }, {"heads have the odd width 5 (model.head_dim)"}},
      {[](Config& c) {
         c.model.attention_weights = AttentionWeights::stick_breaking;
         c.model.rope_base = 500000;
       },
       {"model.rope_base = 500000 with model.attention_weights = stick_breaking", "remove model.rope_base"}},
      {[](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts.count = 4;
         c.model.qkv_bias = true;
       },
       {"model.qkv_bias = true with model.attention = moa", "set one or the other"}},
      {[](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts.count = 4;
         c.model.qk_norm = QkNormKind::head;
       },
       {"model.qk_norm = head with model.attention = moa", "set one or the other"}},
      {[](Config& c) {
         c.moe = {};
         c.sub_dimensions.attention = 4;
         c.model.qkv_bias = true;
       },
       {"sub_dimensions.attention = 4 with model.qkv_bias = true", "set one or the other"}},
      {[](Config& c) {
         c.moe = {};
         c.sub_dimensions.attention = 4;
         c.model.qk_norm = QkNormKind::all;
       },
       {"sub_dimensions.attention = 4 with model.qk_norm = all", "set one or the other"}},
      {[](Config& c) { c.model.layers = 0; }, {"model.layers = 0: must be in [1, 10000]"}},
      {[](Config& c) { c.model.vocab = -3; }, {"model.vocab = -3: must be >= 2"}},
      {[](Config& c) { c.model.init_std = std::numeric_limits<double>::quiet_NaN(); }, {"model.init_std = nan"}},
      {[](Config& c) { c.batch.seq_len = 0; }, {"batch.seq_len = 0: must be >= 1"}},
      {[](Config& c) { c.model.vocab = std::int64_t{1} << 40; }, {"model.vocab = 1099511627776: must be at most"}},
  });
}

TEST(ConfigProblems, impossible_mixtures_are_told) {
  expect_each_told({
      {[](Config& c) { c.moe.top_k = 16; }, {"moe.top_k = 16 is more than moe.experts = 15"}},
      {[](Config& c) { c.moe.top_k = 0; }, {"moe.top_k = 0: must be >= 1"}},
      {[](Config& c) {
         c.moe.shared_experts = 0;
         c.moe.shared_gate = true;
       },
       {"moe.shared_gate = true with moe.experts = 15 and moe.shared_experts = 0", "moe.shared_gate = false"}},
      {[](Config& c) { c.moe.capacity_factor = -1; }, {"moe.capacity_factor = -1: must be in [0, 1000000]"}},
      {[](Config& c) { c.moe.top_k_start = 4; }, {"moe.top_k_start = 4 is more than moe.top_k = 3"}},
      {[](Config& c) {
         c.moe.expert_sizes = {1, 2};
       },
       {"moe.expert_sizes lists 2 widths for moe.experts = 15"}},
      {[](Config& c) { c.moe.expert_sizes = std::vector<std::int64_t>(15, 0); }, {"0 must be >= 1"}},
      {[](Config& c) { c.moe.expert_hidden = 0; }, {"set moe.expert_hidden or moe.expert_sizes"}},
      {[](Config& c) {
         c.moe.expert_hidden = 0;
         c.moe.expert_sizes = std::vector<std::int64_t>(15, 9);
       },
       {"the shared experts have no width"}},
      {[](Config& c) { c.moe.experts = c.moe.expert_hidden = 0; }, {"the shared experts have no width"}},
      {[](Config& c) { c.attention_experts.count = 4; }, {"attention_experts.count = 4 without model.attention = moa"}},
      {[](Config& c) { c.model.attention = AttentionKind::experts; }, {"set attention_experts.count"}},
      {[](Config& c) {
         c.moe = {};
         c.moe.expert_sizes = {4};
       },
       {"moe.expert_sizes lists 1 widths but moe.experts = 0"}},
      {[](Config& c) {
         c.moe = {};
         c.parallel.expert = 2;
       },
       {"parallel.expert = 2 with no experts"}},
      {[](Config& c) {
         c.moe = {};
         c.moe.top_k_start = 1;
       },
       {"moe.top_k_start = 1 with no experts", "set moe.top_k_start = 0"}},
      {[](Config& c) {
         c.moe = {};
         c.moe.capacity_factor = 1.25;
       },
       {"moe.capacity_factor = 1.25 with no experts", "set moe.capacity_factor = 0"}},
      {[](Config& c) {
         c.moe.experts = 3;
         c.parallel.expert = 4;
         c.balance.device_groups = 1;
       },
       {"parallel.expert = 4 is more than moe.experts = 3"}},
      {[](Config& c) {
         c.moe.experts_of_layers = {15, 3, 15, 15};
         c.parallel.expert = 4;
         c.balance.device_groups = 1;
       },
       {"parallel.expert = 4 is more than the 3 experts of layer 1: a rank would hold none"}},
      {[](Config& c) {
         c.moe.experts_of_layers = {15, 15, 15, 2};
       },
       {"moe.top_k = 3 is more than the 2 experts of layer 3"}},
      {[](Config& c) {
         c.moe.experts_of_layers = {4, 4};
         c.model.first_dense_layers = 1;
       },
       {"moe.experts_of_layers lists 2 numbers for the 3 layers after model.first_dense_layers = 1"}},
      {[](Config& c) {
         c.moe.experts_of_layers = {15, 15, 15, 15};
         c.moe.expert_sizes = std::vector<std::int64_t>(15, 9);
       },
       {"moe.experts_of_layers with moe.expert_sizes", "set one or the other"}},
      {[](Config& c) {
         c.moe = {};
         c.moe.experts_of_layers = {4, 5, 4, 4};
       },
       {"moe.experts_of_layers lists 4 numbers but moe.experts = 0: set moe.experts = 5"}},
      {[](Config& c) {
         c.moe.experts_of_layers = {12, 9, 12, 12};
         c.balance.device_groups = 4;
         c.moe.group_limit = 2;
       },
       {"balance.device_groups = 4 does not divide the 9 experts of layer 1, which moe.group_limit = 2 needs"}},
      {[](Config& c) { c.balance.device_groups = 16; }, {"balance.device_groups = 16 is more than moe.experts = 15"}},
      {[](Config& c) { c.parallel.placement = PlacementKind::pairs; },
       {"parallel.placement = pairs with parallel.expert = 1: 15 experts do not form pairs", "placement = cost"}},
      {[](Config& c) {
         c.parallel.placement = PlacementKind::pairs;
         c.moe.experts = 8;
         c.balance.device_groups = 3;
       },
       {"parallel.placement = pairs with balance.device_groups = 3: 4 pairs of experts cannot be divided among 3 "
        "ranks"}},
      {[](Config& c) {
         c.parallel.placement = PlacementKind::pairs;
         c.moe.experts = 4;
         c.moe.expert_sizes = {5, 9, 7, 8};
       },
       {"experts 0 and 1 together are 14 wide, experts 2 and 3 are 15"}},
      {[](Config& c) { c.balance.expert = -1; }, {"balance.expert = -1: must be in [0, 10000]"}},
  });
}

TEST(ConfigProblems, impossible_experts_without_weights_are_told) {
  const auto none = [](Config& c) {
    c.moe = {};
    c.balance = {};
  };
  expect_each_told({
      {[](Config& c) {
         c.moe.zero_experts = 2;
         c.moe.top_k = 18;
       },
       {"moe.top_k = 18 is more than moe.experts + moe.zero_experts + moe.copy_experts = 17"}},
      {[&](Config& c) {
         none(c);
         c.moe.zero_experts = 1;
       },
       {"moe.zero_experts = 1 with no routed experts", "set moe.zero_experts = 0, or moe.experts"}},
      {[&](Config& c) {
         none(c);
         c.moe.copy_experts = 1;
       },
       {"moe.copy_experts = 1 with no routed experts"}},
      {[&](Config& c) {
         none(c);
         c.moe.latent_hidden = 2;
       },
       {"moe.latent_hidden = 2 with no routed experts"}},
      {[](Config& c) { c.moe.latent_hidden = c.model.hidden; },
       {"is not below model.hidden", "or moe.latent_hidden = 0"}},
      {[](Config& c) { c.moe.copy_experts = -1; }, {"moe.copy_experts = -1: must be"}},
      {[](Config& c) {
         c.moe.router = RouterKind::hash;
         c.moe.top_k = 1;
         c.moe.copy_experts = 2;
       },
       {"moe.copy_experts = 2 with moe.router = hash", "set moe.copy_experts = 0"}},
  });
}

void attention_mixture(Config& config, const AttentionExpertsConfig& experts) {
  config.model.attention = AttentionKind::experts;
  config.attention_experts = experts;
}

TEST(ConfigProblems, impossible_routers_are_told) {
  const auto hash = [](Config& c) {
    c.moe.router = RouterKind::hash;
    c.moe.top_k = 1;
  };
  expect_each_told({
      {[](Config& c) { c.moe.router = RouterKind::hash; },
       {"moe.top_k = 3 with moe.router = hash", "set moe.top_k = 1"}},
      {[&](Config& c) {
         hash(c);
         c.moe.gates = Gates::raw;
       },
       {"moe.gates = raw with moe.router = hash", "set moe.gates = ones"}},
      {[&](Config& c) {
         hash(c);
         c.moe.even_routing = true;
       },
       {"moe.even_routing = true with moe.router = hash"}},
      {[&](Config& c) {
         hash(c);
         c.moe.top_k_start = 1;
       },
       {"moe.top_k_start = 1 with moe.router = hash", "set moe.top_k_start = 0"}},
      {[&](Config& c) {
         hash(c);
         c.balance.z_loss = 1e-3;
       },
       {"balance.z_loss = 0.001 with moe.router = hash", "set balance.z_loss = 0"}},
      {[&](Config& c) {
         hash(c);
         c.balance.mutual_information = 0.1;
       },
       {"balance.mutual_information = 0.1 with moe.router = hash", "set balance.mutual_information = 0"}},
      {[](Config& c) { c.balance.concentration = -1; }, {"balance.concentration = -1: must be in [0, 10000]"}},
      {[](Config& c) { c.moe.router_hidden = 0; }, {"moe.router_hidden = 0: must be >= 1"}},
      {[](Config& c) { c.balance.bias_rate = 0.001; },
       {"balance.bias_rate = 0.001 with moe.router = softmax",
        "set moe.router = sigmoid or sqrt_softplus, or balance.bias_rate = 0"}},
      {[](Config& c) { c.moe.group_limit = 2; }, {"moe.group_limit = 2 needs balance.device_groups"}},
      {[](Config& c) {
         c.moe.group_limit = 4;
         c.balance.device_groups = 3;
       },
       {"moe.group_limit = 4 is more than balance.device_groups = 3"}},
      {[](Config& c) {
         c.moe.group_limit = 2;
         c.balance.device_groups = 4;
       },
       {"balance.device_groups = 4 does not divide moe.experts = 15, which moe.group_limit = 2 needs"}},
      {[](Config& c) {
         c.moe.group_limit = 2;
         c.balance.device_groups = 15;
       },
       {"moe.top_k = 3 is more than the 2 experts of moe.group_limit = 2 groups"}},
      {[](Config& c) {
         c.parallel.dispatch = DispatchKind::hierarchical;
         c.parallel.host_ranks = 8;
       },
       {"parallel.dispatch = hierarchical with 1 rank of parallel.expert times parallel.expert_tensor",
        "host_ranks = 8"}},
      {[](Config& c) {
         c.moe.group_limit = 1;
         c.balance.device_groups = 3;
         c.parallel.placement = PlacementKind::cost;
       },
       {"moe.group_limit = 1 with parallel.placement = cost"}},
      {[&](Config& c) {
         hash(c);
         c.moe.group_limit = 1;
       },
       {"moe.group_limit = 1 with moe.router = hash"}},
      {[](Config& c) {
         c.moe.group_limit = 4;
         c.moe.experts = c.balance.device_groups = 65;
       },
       {"balance.device_groups = 65 with moe.group_limit = 4: set at most 64 groups"}},
      {[](Config& c) { c.balance.bias_rate = -1; }, {"balance.bias_rate = -1: must be in [0, 10]"}},
      {[](Config& c) {
         c.moe.router = RouterKind::sigmoid;
         c.moe.gates = Gates::ones;
       },
       {"moe.gates = ones with moe.router = sigmoid"}},
      {[](Config& c) {
         c.moe.router = RouterKind::sqrt_softplus;
         c.moe.gates = Gates::detached;
       },
       {"moe.gates = detached with moe.router = sqrt_softplus"}},
      {[](Config& c) {
         c.moe.router = RouterKind::sigmoid;
         c.balance.z_loss = 0.5;
       },
       {"balance.z_loss = 0.5 with moe.router = sigmoid", "set balance.z_loss = 0"}},
      {[](Config& c) {
         c.moe.router = RouterKind::sigmoid;
         attention_mixture(c, {.count = 4, .top_k = 2, .gates = Gates::detached});
       },
       {"attention_experts.gates = detached with moe.router = sigmoid"}},
      {[&](Config& c) {
         hash(c);
         attention_mixture(c, {.count = 4, .top_k = 2, .gates = {}});
       },
       {"attention_experts.top_k = 2 with moe.router = hash", "set attention_experts.top_k = 1"}},
      {[](Config& c) {
         c.moe = {};
         c.moe.router = RouterKind::hash;
         attention_mixture(c, {.count = 4, .top_k = 1, .gates = Gates::raw});
       },
       {"attention_experts.gates = raw with moe.router = hash", "set attention_experts.gates = ones"}},
  });
  Config config = sparse();
  hash(config);
  EXPECT_THAT(problems(config, 4), IsEmpty());
}

TEST(ConfigResolve, gates_follow_the_router) {
  Config config = sparse();
  resolve(config, 1);
  EXPECT_EQ(config.moe.gates, Gates::raw);
  EXPECT_EQ(config.attention_experts.gates, std::nullopt);
  attention_mixture(config, {.count = 4, .top_k = 2, .gates = {}});
  resolve(config, 1);
  EXPECT_EQ(config.attention_experts.gates, Gates::detached);
  config = sparse();
  config.moe.router = RouterKind::hash;
  resolve(config, 1);
  EXPECT_EQ(config.moe.gates, Gates::ones);
}

TEST(ConfigProblems, impossible_meshes_and_batches_are_told) {
  expect_each_told({
      {[](Config& c) { c.batch.global = 6; }, {"batch.global = 6 cannot be divided among 4 data-parallel ranks"}},
      {[](Config& c) { c.batch.global = 3; }, {"batch.global = 3"}, 2},
      {[](Config& c) { c.batch.micro = 4; }, {"batch.micro = 4 does not divide the 2 sequences"}},
      {[](Config& c) { c.batch.global = 0; }, {"batch.global = 0: must be >= 1"}},
      {[](Config& c) { c.parallel.expert = 3; }, {"parallel.expert = 3", "does not divide the 4 ranks"}},
      {[](Config& c) { c.parallel.expert = 8; }, {"parallel.expert = 8", "does not divide the 4 ranks"}},
      {[](Config& c) { c.parallel.expert = 0; }, {"parallel.expert = 0: must be >= 1"}},
  });
}

/// Every value that a message proposes works.
TEST(ConfigProblems, advice_names_values_that_work) {
  const auto told = [](const Config& config, int world) {
    const std::vector<std::string> found = problems(config, world);
    EXPECT_EQ(found.size(), 1u) << testing::PrintToString(found);
    return found.empty() ? std::string() : found.front();
  };
  Config config = sparse();
  config.parallel.expert = 3;
  EXPECT_THAT(told(config, 4), testing::EndsWith("the 4 ranks of a stage: set parallel.expert = 1, 2 or 4"));
  for (const int expert : {1, 2, 4}) {
    Config other = config;
    other.parallel.expert = expert;
    EXPECT_THAT(problems(other, 4), IsEmpty()) << expert;
  }
  EXPECT_THAT(told(config, 8), HasSubstr("parallel.expert = 3"));
  config.batch.global = 12;
  EXPECT_THAT(told(config, 4), testing::EndsWith(": start 3 ranks (mpirun -n 3), or set parallel.expert = 1, 2 or 4"));
  EXPECT_THAT(problems(config, 3), IsEmpty());
  EXPECT_THAT(told(config, 1), testing::EndsWith(": start 3 ranks (mpirun -n 3)"));
  config.batch.global = 8;
  EXPECT_THAT(told(config, 1), testing::EndsWith(": start 3 ranks (mpirun -n 3) with batch.global = 9"));
  config.batch.global = 9;
  EXPECT_THAT(problems(config, 3), IsEmpty());

  config = sparse();
  config.batch.global = 6;
  EXPECT_THAT(told(config, 4), testing::EndsWith("4 data-parallel ranks: set a multiple of 4"));
  config.batch.micro = 3;
  EXPECT_THAT(told(config, 4), testing::EndsWith("4 data-parallel ranks: set a multiple of 12"));
  config.batch.global = 12;
  EXPECT_THAT(problems(config, 4), IsEmpty());
  config.batch.micro = 2;
  EXPECT_THAT(told(config, 4), testing::EndsWith(": set batch.micro = 1 or 3"));
  config = sparse();
  config.parallel.virtual_stages = 2;
  EXPECT_THAT(told(config, 4), testing::EndsWith("1f1b: set parallel.virtual_stages = 1"));  // one rank in a pipeline
  config.parallel.pipeline = 2;
  EXPECT_THAT(told(config, 4),
              testing::EndsWith("set parallel.schedule = interleaved, or parallel.virtual_stages = 1"));
}

TEST(ConfigProblems, batches_that_cannot_overlap_are_told) {
  const auto overlapping = [](Config& c) {
    c.parallel.expert = 2;
    c.parallel.overlap = Overlap::batches;
    c.batch.micro = 1;
  };
  expect_each_told({
      {[&](Config& c) {
         overlapping(c);
         c.batch.micro = 0;
       },
       {"parallel.overlap = batches with one micro-batch of 2 sequences per step", "set a smaller batch.micro"}},
      {[&](Config& c) {
         overlapping(c);
         c.parallel.pipeline = 2;
       },
       {"parallel.overlap = batches with parallel.pipeline = 2", "parallel.overlap = shared"}},
      {[&](Config& c) {
         overlapping(c);
         c.parallel.schedule = ScheduleKind::gpipe;
       },
       {"parallel.overlap = batches with parallel.schedule = gpipe: set parallel.schedule = 1f1b"}},
      {[&](Config& c) {
         overlapping(c);
         c.parallel.zero = 3;
       },
       {"parallel.overlap = batches with parallel.zero = 3", "set parallel.zero = 2"}},
  });
  Config config = sparse();
  overlapping(config);
  for (const int zero : {0, 1, 2}) {
    config.parallel.zero = zero;
    EXPECT_THAT(problems(config, 4), IsEmpty());
  }
  config.parallel = {.pipeline = 2, .zero = 3, .overlap = Overlap::batches};  // no tokens travel
  EXPECT_THAT(problems(config, 4), IsEmpty());
}

TEST(ConfigProblems, shares_of_tensor_ranks_that_do_not_come_out_are_told) {
  expect_each_told({
      {[](Config& c) {
         c.parallel.tensor = 4;
         c.model.heads = 2;
       },
       {"parallel.tensor = 4 does not divide model.heads = 2"}},
      {[](Config& c) {
         c.parallel.tensor = 4;
         c.model.kv_heads = 2;
       },
       {"parallel.tensor = 4 does not divide model.kv_heads = 2"}},
      {[](Config& c) { c.parallel.tensor = c.model.heads = 8; }, {"4 ranks do not split", "parallel.tensor = 8"}},
      {[](Config& c) { c.parallel.tensor = 0; }, {"parallel.tensor = 0: must be >= 1"}},
      {[](Config& c) {
         c.parallel.tensor = 4;
         c.model.vocab = 3;
       },
       {"parallel.tensor = 4 is more than model.vocab = 3"}},
      {[](Config& c) {
         c.parallel.tensor = 4;
         c.model.ffn_hidden = 3;
       },
       {"parallel.tensor = 4 is more than model.ffn_hidden = 3"}},
      {[](Config& c) {
         c.parallel.tensor = 4;
         c.moe.expert_hidden = 3;
       },
       {"parallel.tensor = 4 is more than moe.shared_experts times moe.expert_hidden = 3"}},
      {[](Config& c) {
         c.parallel.expert_tensor = 4;
         c.moe.expert_hidden = 3;
       },
       {"parallel.expert_tensor = 4 is more than moe.expert_hidden = 3"}},
      {[](Config& c) {
         c.parallel.expert_tensor = 4;
         c.moe.expert_sizes = std::vector<std::int64_t>(15, 9);
         c.moe.expert_sizes[7] = 2;
       },
       {"parallel.expert_tensor = 4 is more than the smallest of moe.expert_sizes = 2"}},
      {[](Config& c) { c.parallel.expert_tensor = 3; }, {"parallel.expert_tensor = 3 does not divide the 4 ranks"}},
      {[](Config& c) {
         c.moe = {};
         c.parallel.expert_tensor = 2;
       },
       {"parallel.expert_tensor = 2 with no experts"}},
  });
}

TEST(ConfigProblems, impossible_pipelines_are_told) {
  const auto interleave = [](Config& c, int pipeline, int chunks) {
    c.parallel.schedule = ScheduleKind::interleaved;
    c.parallel.pipeline = pipeline;
    c.parallel.virtual_stages = chunks;
  };
  expect_each_told({
      {[](Config& c) { c.parallel.pipeline = 3; }, {"4 ranks do not split into parallel.pipeline = 3"}},
      {[](Config& c) { c.parallel.pipeline = 8; }, {"parallel.pipeline = 8", "more than model.layers = 4"}, 8},
      {[](Config& c) { c.parallel.virtual_stages = 2; }, {"parallel.virtual_stages = 2 with parallel.schedule = 1f1b"}},
      {[](Config& c) { c.parallel.virtual_stages = 0; }, {"parallel.virtual_stages = 0: must be >= 1"}},
      {[&](Config& c) { interleave(c, 1, 2); },
       {"parallel.pipeline = 1 and parallel.virtual_stages = 2: both must be"}},
      {[&](Config& c) {
         interleave(c, 2, 1);
         c.batch.micro = 1;
       },
       {"parallel.pipeline = 2 and parallel.virtual_stages = 1: both must be"}},
      {[&](Config& c) {
         interleave(c, 4, 2);
         c.batch.micro = c.batch.global / 4;
       },
       {"parallel.pipeline = 4 times parallel.virtual_stages = 2 is more than model.layers = 4"}},
      {[&](Config& c) { interleave(c, 2, 2); }, {"groups of parallel.pipeline = 2, which does not divide the 1 of"}},
  });
}

TEST(ConfigProblems, uneven_shares_of_widths_and_words_pass) {
  Config config = sparse();
  config.model.vocab = 4099;
  config.model.ffn_hidden = 341;
  config.moe.expert_hidden = 65;
  config.batch.seq_len = 7;
  config.parallel.tensor = 4;
  config.parallel.expert = 2;
  config.parallel.expert_tensor = 4;
  config.parallel.sequence = true;
  EXPECT_THAT(problems(config, 8), IsEmpty());
}

TEST(ConfigProblems, impossible_training_is_told) {
  expect_each_told({
      {[](Config& c) { c.run.steps = 0; }, {"run.steps = 0: must be >= 1"}},
      {[](Config& c) { c.optim.min_lr = 1; }, {"optim.min_lr = 1 is above optim.lr = 0.001"}},
      {[](Config& c) { c.optim.min_lr = -1; }, {"optim.min_lr = -1: must be in [0, 1e+30]"}},
      {[](Config& c) { c.optim.beta1 = 1; }, {"optim.beta1 = 1: must be in [0, 1)"}},
      {[](Config& c) { c.optim.beta2 = -0.5; }, {"optim.beta2 = -0.5: must be in [0, 1)"}},
      {[](Config& c) { c.optim.eps = 0; }, {"optim.eps = 0: must be in [1e-30, 1]"}},
      {[](Config& c) { c.data.valid_fraction = 1; }, {"data.valid_fraction = 1: must be in [0, 1)"}},
      {[](Config& c) { c.eval.every = 5; }, {"eval.every = 5 with no data to validate on"}},
      {[](Config& c) { c.run.prometheus = "a.txt"; }, {"run.prometheus = a.txt", ".prom"}},
      {[](Config& c) { c.run.gemm_file = "a.json"; }, {"run.gemm_file = a.json", "run.gemm_choice = timed"}},
      {[](Config& c) { c.checkpoint.keep = -1; }, {"checkpoint.keep = -1: must be >= 0"}},
      {[](Config& c) { c.run.dir = ""; }, {"run.dir = : must not be empty"}},
  });
}

TEST(ConfigProblems, impossible_pieces_and_attention_experts_are_told) {
  expect_each_told(
      {
          {[](Config& c) { c.moe = {}, c.sub_dimensions = {.attention = 7}; },
           {"sub_dimensions.attention = 7 does not divide"}},
          {[](Config& c) { c.moe = {}, c.sub_dimensions = {.ffn = 4, .active = 5}; },
           {"sub_dimensions.active = 5 is more than"}},
          {[](Config& c) { c.moe = {}, c.sub_dimensions = {.ffn = 4, .active = 2, .shared = 3}; },
           {"sub_dimensions.shared = 3"}},
          {[](Config& c) { c.moe = {}, c.sub_dimensions = {.ffn = 4, .active = 3, .shared = 3}; },
           {"leaves no piece to choose"}},
          {[](Config& c) { c.moe = {}, c.sub_dimensions = {.ffn = 4, .fusion_width = 3}; },
           {"sub_dimensions.fusion_width = 3"}},
          {[](Config& c) { c.sub_dimensions = {.attention = 4}; }, {"moe.experts = ", "set one or the other"}},
          {[](Config& c) {
             c.model.attention = AttentionKind::experts;
             c.attention_experts = {.count = 2, .top_k = 3, .gates = {}};
           },
           {"attention_experts.top_k = 3 is more than attention_experts.count = 2"}},
          {[](Config& c) {
             c.moe = {};
             c.model.attention = AttentionKind::experts;
             c.attention_experts.count = 2;
             c.sub_dimensions.attention = 4;
           },
           {"sub_dimensions.attention = 4 with model.attention = moa"}},
          {[](Config& c) { c.model.hidden = 20000000; }, {"a model of about"}},
      },
      contradictions);
}

TEST(ConfigProblems, gpus_are_for_builds_with_cuda) {
  Config config = sparse();
  config.run.device = DeviceKind::cuda;
  const std::vector<std::string> found = problems(config, 4);
  if (built_with_cuda) {
    EXPECT_THAT(found, IsEmpty());
  } else {
    EXPECT_THAT(found, ElementsAre(HasSubstr("this build has no CUDA; set run.device = cpu")));
  }
}

TEST(ConfigProblems, are_told_all_at_once) {
  Config config = sparse();
  config.model.hidden = 250;
  config.moe.top_k = 99;
  config.batch.global = 7;
  config.parallel.zero = 4;
  config.optim.beta1 = 2;
  const std::vector<std::string> found = problems(config, 2);
  EXPECT_EQ(found.size(), 5u) << testing::PrintToString(found);
  try {
    require_none(found);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), StartsWith("5 mistakes"));
    for (const std::string& text : found) EXPECT_THAT(error.what(), HasSubstr(text));
  }
  EXPECT_NO_THROW(require_none({}));
}

TEST(ConfigProblems, zero_and_negative_sizes_never_divide) {
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    Config config = sparse();
    config.batch = {bad, bad, bad};
    config.model.heads = config.model.hidden = config.model.kv_heads = config.model.head_dim = bad;
    config.moe.top_k = config.moe.expert_hidden = config.moe.shared_experts = config.balance.device_groups = bad;
    config.parallel.pipeline = config.parallel.tensor = config.parallel.expert = config.parallel.expert_tensor =
        static_cast<int>(std::max<std::int64_t>(bad, std::numeric_limits<int>::min()));
    EXPECT_GE(problems(config, 8).size(), 10u);
  }
}

TEST(ConfigProblems, odd_but_possible_sizes_pass) {
  Config config = sparse();
  config.model.head_dim = 50;  // wider or narrower than hidden / heads is a model like any other
  config.model.kv_heads = 2;
  config.batch.global = 21;
  config.parallel.expert = 7;
  config.batch.seq_len = 1;
  config.moe.top_k = 15;
  config.balance.device_groups = 15;
  EXPECT_THAT(problems(config, 7), IsEmpty());
  config.model.attention_weights = AttentionWeights::stick_breaking;
  config.model.head_dim = 51;  // turns no pairs
  EXPECT_THAT(problems(config, 7), IsEmpty());
}

TEST(ConfigResolve, fills_derived_values) {
  Config config = sparse();
  config.model.hidden = 1280;
  config.model.heads = 10;
  config.parallel.expert = 2;
  config.batch.global = 12;
  resolve(config, 4);
  EXPECT_EQ(config.model.kv_heads, 10);
  EXPECT_EQ(config.model.head_dim, 128);
  EXPECT_EQ(config.model.ffn_hidden, 3413);  // DeepSeekMoE's 2B models
  EXPECT_EQ(config.batch.micro, 3);
  EXPECT_EQ(config.balance.device_groups, 2);
  EXPECT_EQ(config.run.device, gpu_count() > 0 ? DeviceKind::cuda : DeviceKind::cpu);
  const std::string once = to_ini(config);
  resolve(config, 4);
  EXPECT_EQ(to_ini(config), once);
  EXPECT_THAT(problems(config, 4), IsEmpty());

  Config wide = sparse();
  wide.model.hidden = 4096;
  resolve(wide, 1);
  EXPECT_EQ(wide.model.ffn_hidden, 10923);  // its 145B models
}

TEST(ConfigResolve, keeps_given_values) {
  Config config = sparse();
  config.model.kv_heads = 2;
  config.model.head_dim = 32;
  config.model.ffn_hidden = 5;
  config.batch.micro = 1;
  config.balance.device_groups = 3;
  config.moe.gates = Gates::ones;
  const std::string given = to_ini(config);
  config.run.device = gpu_count() > 0 ? DeviceKind::cuda : DeviceKind::cpu;
  const std::string expected = to_ini(config);
  config.run.device = DeviceKind::automatic;
  ASSERT_EQ(to_ini(config), given);
  resolve(config, 2);
  EXPECT_EQ(to_ini(config), expected);
}

TEST(ShippedConfigs, load_resolve_and_have_no_problems) {
  const std::map<std::string, std::vector<int>> worlds = {
      {"quickstart.ini", {2, 4, 8}},          {"deepseekmoe-small.ini", {1, 2, 4, 8, 16}},
      {"gshard-small.ini", {1, 2, 4, 8, 16}}, {"switch-small.ini", {1, 2, 4, 8, 16}},
      {"hash-small.ini", {1, 2, 4, 8, 16}},   {"dense-small.ini", {1, 2, 4, 8, 16}}};
  for (const auto& [name, counts] : worlds) {
    const std::string file = std::filesystem::path(LYCEUM_SOURCE_DIR) / "configs" / name;
    for (const int world : counts) {
      Config config = load_config(std::vector<std::string>{"--config", file}).config;
      EXPECT_THAT(problems(config, world), IsEmpty()) << file << " on " << world;
      resolve(config, world);
      EXPECT_THAT(problems(config, world), IsEmpty()) << file << " on " << world;
      EXPECT_EQ(config.batch.micro, config.batch.global / world);
    }
  }
}

}  // namespace
}  // namespace lyceum
