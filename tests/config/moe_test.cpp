#include "config/moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "config/check.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

TEST(ConfigProblems, impossible_mixtures_are_reported) {
  expect_each_reported({
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
         c.moe = {};
         c.moe.routed_scale = 2.5;
       },
       {"moe.routed_scale = 2.5 with no routed experts", "set moe.routed_scale = 1"}},
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
       {"parallel.expert = 4 is more than the 3 experts of layer 1: some ranks would hold no expert"}},
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
       {"balance.device_groups = 4 does not divide the 9 experts of layer 1, as moe.group_limit = 2 requires"}},
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

TEST(ConfigProblems, impossible_moves_of_experts_are_reported) {
  const auto moving = [](Config& c) {
    c.moe.experts = 16;
    c.parallel.expert = 2;
    c.parallel.replace_every = 10;
  };
  Config possible = sparse();
  moving(possible);
  EXPECT_THAT(problems(possible, 4), testing::IsEmpty());
  expect_each_reported({
      {[](Config& c) { c.parallel.replace_every = 10; },
       {"parallel.replace_every = 10 with parallel.expert = 1: experts cannot move without other ranks"}},
      {[](Config& c) { c.parallel.replace_every = -1; }, {"parallel.replace_every = -1: must be"}},
      {[](Config& c) { c.parallel.replace_gain = 1; }, {"parallel.replace_gain = 1: must be"}},
      {[&](Config& c) {
         moving(c);
         c.optim.train_only = {"*/mlp/*"};
       },
       {"parallel.replace_every = 10 with optim.train_only: only experts that are trained as a whole can move"}},
      {[&](Config& c) {
         moving(c);
         c.optim.lora_rank = 4;
         c.optim.lora_targets = {"*/q_proj/weight"};
       },
       {"parallel.replace_every = 10 with optim.lora_rank"}},
      {[&](Config& c) {
         moving(c);
         c.moe.group_limit = 2;
         c.balance.device_groups = 4;
       },
       {"parallel.replace_every = 10 with moe.group_limit = 2 and balance.device_groups = 4: experts move within a "
        "group"}},
  });
}

TEST(ConfigProblems, impossible_replicas_are_reported) {
  const auto replicated = [](Config& c) {
    c.moe.experts = 16;
    c.parallel.expert = 2;
    c.parallel.replicas = 2;
  };
  Config possible = sparse();
  replicated(possible);
  EXPECT_THAT(problems(possible, 4), testing::IsEmpty());
  expect_each_reported({
      {[](Config& c) { c.parallel.replicas = 1; },
       {"parallel.replicas = 1 with parallel.expert = 1: experts have replicas on other expert ranks only"}},
      {[](Config& c) { c.parallel.replicas = -1; }, {"parallel.replicas = -1: must be"}},
      {[&](Config& c) {
         replicated(c);
         c.parallel.replicas = 9;
       },
       {"parallel.replicas = 9 with moe.experts = 16 on parallel.expert = 2 ranks: other ranks have at most 8 experts: "
        "set parallel.replicas to at most 8"}},
      {[&](Config& c) {
         replicated(c);
         c.optim.train_only = {"*/mlp/*"};
       },
       {"parallel.replicas = 2 with optim.train_only: only experts that are trained as a whole can have replicas"}},
      {[&](Config& c) {
         replicated(c);
         c.optim.lora_rank = 4;
         c.optim.lora_targets = {"*/q_proj/weight"};
       },
       {"parallel.replicas = 2 with optim.lora_rank"}},
      {[&](Config& c) {
         replicated(c);
         c.parallel.expert_exchange = ExpertExchange::bounded;
       },
       {"parallel.replicas = 2 with parallel.expert_exchange = bounded: replicas depend on the counts of all ranks: "
        "set "
        "parallel.expert_exchange = counted, or parallel.replicas = 0"}},
  });
}

TEST(ConfigProblems, impossible_experts_without_weights_are_reported) {
  const auto none = [](Config& c) {
    c.moe = {};
    c.balance = {};
  };
  expect_each_reported({
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

}  // namespace
}  // namespace lyceum
