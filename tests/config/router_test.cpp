#include "config/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "config/check.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

using testing::IsEmpty;

void attention_mixture(Config& config, const AttentionExpertsConfig& experts) {
  config.model.attention = AttentionKind::experts;
  config.attention_experts = experts;
}

TEST(ConfigProblems, impossible_routers_are_reported) {
  const auto hash = [](Config& c) {
    c.moe.router = RouterKind::hash;
    c.moe.top_k = 1;
  };
  expect_each_reported({
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
      {[](Config& c) {
         c.moe.router = RouterKind::noisy;
         c.moe.router_bias = true;
       },
       {"moe.router_bias = true with moe.router = noisy", "set moe.router = softmax, sigmoid or sqrt_softplus"}},
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
       {"balance.device_groups = 4 does not divide moe.experts = 15, as moe.group_limit = 2 requires"}},
      {[](Config& c) {
         c.moe.group_limit = 2;
         c.balance.device_groups = 15;
       },
       {"moe.top_k = 3 is more than the 2 experts of moe.group_limit = 2 groups"}},
      {[](Config& c) {
         c.parallel.dispatch = DispatchKind::hierarchical;
         c.parallel.host_ranks = 8;
       },
       {"parallel.dispatch = hierarchical: 1 rank of parallel.expert times parallel.expert_tensor", "host_ranks = 8"}},
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
      {[](Config& c) { c.moe.routed_scale = 0; }, {"moe.routed_scale = 0: must be in (0, 10000]"}},
      {[&](Config& c) {
         hash(c);
         c.moe.routed_scale = 2.5;
       },
       {"moe.routed_scale = 2.5 with moe.router = hash", "set moe.routed_scale = 1"}},
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
      {[](Config& c) {
         c.moe.router = RouterKind::uniform;
         c.moe.gates = Gates::raw;
       },
       {"moe.gates = raw with moe.router = uniform, which has no scores: set moe.gates = renormalized or ones"}},
      {[](Config& c) {
         c.moe.router = RouterKind::uniform;
         c.moe.top_k_start = 1;
       },
       {"moe.top_k_start = 1 with moe.router = uniform, which chooses the same number", "set moe.top_k_start = 0"}},
      {[](Config& c) {
         c.moe.router = RouterKind::uniform;
         c.balance.expert = 0.1;
       },
       {"balance.expert = 0.1 with moe.router = uniform, which is not trained", "set balance.expert = 0"}},
      {[](Config& c) {
         c.moe.router = RouterKind::uniform;
         c.moe.group_limit = 1;
       },
       {"moe.group_limit = 1 with moe.router = uniform: set moe.group_limit = 0"}},
      {[](Config& c) {
         c.moe.router = RouterKind::uniform;
         c.balance.bias_rate = 0.1;
       },
       {"balance.bias_rate = 0.1 with moe.router = uniform, which has no bias"}},
  });
  Config config = sparse();
  hash(config);
  EXPECT_THAT(problems(config, 4), IsEmpty());
  config = sparse();
  config.moe.router = RouterKind::uniform;
  config.moe.routed_scale = 2;
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
  config = sparse();
  config.moe.router = RouterKind::uniform;
  attention_mixture(config, {.count = 4, .top_k = 2, .gates = {}});
  resolve(config, 1);
  EXPECT_EQ(config.moe.gates, Gates::renormalized);
  EXPECT_EQ(config.attention_experts.gates, Gates::renormalized);
}

}  // namespace
}  // namespace lyceum
