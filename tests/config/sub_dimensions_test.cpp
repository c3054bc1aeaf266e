#include "config/sub_dimensions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "config/check.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

TEST(ConfigProblems, impossible_sub_dimensions_and_attention_experts_are_reported) {
  expect_each_reported(
      {
          {[](Config& c) { c.moe = {}, c.sub_dimensions = {.attention = 7}; },
           {"sub_dimensions.attention = 7 does not divide"}},
          {[](Config& c) { c.moe = {}, c.sub_dimensions = {.ffn = 4, .active = 5}; },
           {"sub_dimensions.active = 5 is more than"}},
          {[](Config& c) { c.moe = {}, c.sub_dimensions = {.ffn = 4, .active = 2, .shared = 3}; },
           {"sub_dimensions.shared = 3 is more than sub_dimensions.active = 2"}},
          {[](Config& c) {
             c.moe = {}, c.sub_dimensions = {.ffn = 4, .active = 3, .shared = 3}, c.balance.sub_dimension = 0.1;
           },
           {"balance.sub_dimension = 0.1 with sub_dimensions.shared = 3 of sub_dimensions.active = 3"}},
          {[](Config& c) { c.moe = {}, c.model.hidden = 257, c.model.head_dim = 4, c.sub_dimensions = {.ffn = 257}; },
           {"sub_dimensions.ffn = 257"}},
          {[](Config& c) { c.moe = {}, c.sub_dimensions = {.ffn = 4, .fusion_width = 3}; },
           {"sub_dimensions.fusion_width = 3"}},
          {[](Config& c) { c.sub_dimensions = {.attention = 4}; }, {"moe.experts = ", "set one or the other"}},
          {[](Config& c) {
             c.model.attention = AttentionKind::experts;
             c.attention_experts = {.count = 2, .top_k = 3, .gates = {}};
           },
           {"attention_experts.top_k = 3 is more than attention_experts.count = 2"}},
          {[](Config& c) {
             c.model.attention = AttentionKind::experts;
             c.attention_experts = {.count = 4, .top_k = 3, .count_of_layers = {4, 2}, .gates = {}};
             c.model.layers = 2;
           },
           {"attention_experts.top_k = 3 is more than the 2 attention experts of layer 1"}},
          {[](Config& c) {
             c.model.attention = AttentionKind::experts;
             c.attention_experts = {.count = 4, .count_of_layers = {4}, .gates = {}};
             c.model.layers = 2;
           },
           {"attention_experts.count_of_layers lists 1 numbers for model.layers = 2"}},
          {[](Config& c) { c.model.attention = AttentionKind::experts; }, {"moa with no attention experts"}},
          {[](Config& c) {  // the list counts in the size of the model, whatever the count
             c.model.attention = AttentionKind::experts;
             c.attention_experts.count_of_layers =
                 std::vector<std::int64_t>(static_cast<std::size_t>(c.model.layers), 65536);
             c.model.hidden = 2048 * c.model.hidden;
           },
           {"the model has about"}},
          {[](Config& c) {
             c.attention_experts.count_of_layers = {3, 4};
           },
           {"attention_experts.count_of_layers without model.attention = moa"}},
          {[](Config& c) {
             c.moe = {};
             c.model.attention = AttentionKind::experts;
             c.attention_experts.count = 2;
             c.sub_dimensions.attention = 4;
           },
           {"sub_dimensions.attention = 4 with model.attention = moa"}},
          {[](Config& c) { c.model.hidden = 20000000; }, {"the model has about"}},
      },
      contradictions);
}

TEST(SubDimensionKeys, RefuseLossesOfRoutersThatChooseNothing) {
  std::vector<Impossible> cases;
  const std::vector<std::pair<const char*, double BalanceConfig::*>> weights{
      {"balance.expert", &BalanceConfig::expert},
      {"balance.device", &BalanceConfig::device},
      {"balance.z_loss", &BalanceConfig::z_loss},
      {"balance.mutual_information", &BalanceConfig::mutual_information},
      {"balance.concentration", &BalanceConfig::concentration}};
  for (const auto& [key, weight] : weights) {
    cases.push_back({[weight = weight](Config& c) {
                       c.moe = {}, c.sub_dimensions = {.ffn = 4, .active = 3, .shared = 3}, c.balance.*weight = 0.1;
                     },
                     {std::string(key) + " = 0.1 with sub_dimensions.shared = 3 of sub_dimensions.active = 3",
                      "no sub-dimension is left to choose"}});
  }
  expect_each_reported(cases, contradictions);
  Config config;  // attention experts have these losses
  config.model.attention = AttentionKind::experts;
  config.attention_experts = {.count = 4, .gates = {}};
  config.sub_dimensions = {.ffn = 4, .active = 3, .shared = 3};
  config.balance = {.expert = 0.1, .z_loss = 0.1};
  EXPECT_THAT(contradictions(config, 1), testing::IsEmpty());
}

TEST(SubDimensionKeys, AllowSharingAllActiveOnesAndAsManyAsTheKernelsHave) {
  Config config;
  config.moe = {};
  config.model.hidden = 256;
  config.sub_dimensions = {.attention = 256, .ffn = 4, .active = 3, .shared = 3};
  EXPECT_THAT(contradictions(config, 1), testing::IsEmpty());
}

TEST(SubDimensionKeys, InputGatesHaveNoEffectWithoutGates) {
  SubDimensionsConfig parts{.ffn = 4, .gates = SubDimensionGates::ones, .input_gates = true};
  simplify_sub_dimensions(parts);
  EXPECT_FALSE(parts.input_gates);
  parts = {.ffn = 4, .input_gates = true};
  simplify_sub_dimensions(parts);
  EXPECT_TRUE(parts.input_gates);
}

}  // namespace
}  // namespace lyceum
