#include "optim/weight_rule.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/tiny_run.h"

namespace lyceum {
namespace {

OptimConfig muon_config(std::vector<std::string> adamw_only = {}) {
  OptimConfig config;
  config.rule = UpdateRuleName::muon;
  config.adamw_only = std::move(adamw_only);
  return config;
}

TEST(RuleAssignment, GivesMuonTheMatricesOfBlocks) {
  const RuleAssignment rules(muon_config());
  for (const char* name : {"model/layers/0/self_attn/q_proj/weight", "model/layers/11/mlp/experts/3/down_proj/weight",
                           "model/layers/2/mlp/gate/weight", "model/mtp/0/proj/weight"}) {
    EXPECT_EQ(rules.rule_of(name, {4, 8}), WeightRule::muon) << name;
  }
  EXPECT_EQ(rules.rule_of("model/embed_tokens/weight", {4, 8}), WeightRule::adamw);
  EXPECT_EQ(rules.rule_of("lm_head/weight", {4, 8}), WeightRule::adamw);
  EXPECT_EQ(rules.rule_of("model/layers/0/input_layernorm/weight", {8}), WeightRule::adamw);
  EXPECT_EQ(rules.rule_of("model/layers/0/mlp/fusion/in/weight", {2, 4, 4}), WeightRule::adamw);
  EXPECT_EQ(RuleAssignment({}).rule_of("model/layers/0/mlp/gate/weight", {4, 8}), WeightRule::adamw);
}

TEST(RuleAssignment, LeavesNamedTensorsToAdamW) {
  const RuleAssignment rules(muon_config({"*/k_proj/weight", "model/layers/[01]/mlp/gate/weight"}));
  EXPECT_EQ(rules.rule_of("model/layers/7/self_attn/k_proj/weight", {4, 8}), WeightRule::adamw);
  EXPECT_EQ(rules.rule_of("model/layers/1/mlp/gate/weight", {4, 8}), WeightRule::adamw);
  EXPECT_EQ(rules.rule_of("model/layers/2/mlp/gate/weight", {4, 8}), WeightRule::muon);
  EXPECT_THROW(RuleAssignment(muon_config({"*/gate/weight[2:]"})), Error);
}

TEST(RuleAssignment, RefusesPatternsWithoutATensor) {
  Config config = tiny_config();
  config.optim = muon_config({"*/k_proj/weight", "*/no_such/weight"});
  resolve(config, 1);
  try {
    require_ruled_tensors(config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("*/no_such/weight"), std::string::npos);
    EXPECT_EQ(std::string(error.what()).find("k_proj"), std::string::npos);
  }
  config.optim.adamw_only = {"*/k_proj/weight"};
  EXPECT_NO_THROW(require_ruled_tensors(config));
}

/// A unit with a vector, a stack of three matrices of which AdamW has the second, and a matrix.
std::unique_ptr<ParameterUnit> mixed_unit() {
  auto unit = std::make_unique<ParameterUnit>("unit", ParameterUnit::Group::dense, 1);
  unit->add(whole_parameter("model/layers/0/norm/weight", {40}, {}, false));  // 64 elements with padding
  unit->add(stacked_parameter("qkv",
                              {{"model/layers/0/self_attn/q_proj/weight", 3, {0, 3}},
                               {"model/layers/0/self_attn/k_proj/weight", 2, {0, 2}},
                               {"model/layers/0/self_attn/v_proj/weight", 2, {0, 2}}},
                              10, 0.1));  // 70 elements, 96 with padding
  unit->add(whole_parameter("model/layers/0/mlp/gate/weight", {4, 8}, 0.1, true));
  return unit;
}

TEST(UpdateRanges, AreDividedByDecayAndRule) {
  const auto unit = mixed_unit();
  const RuleAssignment rules(muon_config({"*/k_proj/weight"}));
  const std::vector<UpdateRange> ranges = update_ranges(rules, *unit);
  const std::vector<UpdateRange> expected{{64, false, WeightRule::adamw},
                                          {64 + 30, true, WeightRule::muon},
                                          {64 + 50, true, WeightRule::adamw},
                                          {64 + 96 + 32, true, WeightRule::muon}};
  EXPECT_EQ(ranges, expected);
  EXPECT_EQ(update_ranges(RuleAssignment({}), *unit),
            (std::vector<UpdateRange>{{64, false, WeightRule::adamw}, {192, true, WeightRule::adamw}}));
  const auto parts = rule_ranges(ranges, {70, 130});  // ends in padding after the unit
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].range, (Range{70, 24}));
  EXPECT_EQ(parts[1].range, (Range{94, 20}));
  EXPECT_EQ(parts[2].range, (Range{114, 86}));
  EXPECT_EQ(elements_with_state(parts, 0), 130);
  EXPECT_EQ(elements_with_state(parts, 1), 20);
}

/// Without optim.qk_clip the heads make no difference; with it, ranges end where the elements of heads do.
TEST(UpdateRanges, AreDividedByHeads) {
  const auto unit = mixed_unit();
  const HeadScaling queries{.period = 10, .split = 10, .first_head = 6}, keys{.begin = 30, .period = 20, .split = 8};
  unit->parameters()[1]->heads = {{{0, 30}, queries}, {{30, 20}, keys}};
  EXPECT_EQ(update_ranges(RuleAssignment({}), *unit),
            (std::vector<UpdateRange>{{64, false, WeightRule::adamw}, {192, true, WeightRule::adamw}}));
  OptimConfig config = muon_config({"*/k_proj/weight"});
  config.qk_clip = 100;
  HeadScaling queries_in_unit = queries, keys_in_unit = keys;
  queries_in_unit.begin = 64;
  keys_in_unit.begin = 64 + 30;
  EXPECT_EQ(update_ranges(RuleAssignment(config), *unit),
            (std::vector<UpdateRange>{{64, false, WeightRule::adamw},
                                      {64 + 30, true, WeightRule::muon, queries_in_unit},
                                      {64 + 50, true, WeightRule::adamw, keys_in_unit},
                                      {64 + 96 + 32, true, WeightRule::muon}}));
  config = {};
  config.qk_clip = 100;
  const std::vector<UpdateRange> ranges = update_ranges(RuleAssignment(config), *unit);
  EXPECT_EQ(ranges, (std::vector<UpdateRange>{{64, false, WeightRule::adamw},
                                              {64 + 30, true, WeightRule::adamw, queries_in_unit},
                                              {64 + 50, true, WeightRule::adamw, keys_in_unit},
                                              {192, true, WeightRule::adamw}}));
  EXPECT_EQ(rule_ranges(ranges, {70, 100}).size(), 1u) << "heads do not divide the states";
}

TEST(WeightRule, MuonKeepsOneStateLess) {
  const OptimConfig optim;
  EXPECT_EQ(state_bytes(WeightRule::adamw, optim, DType::f32), 8);
  EXPECT_EQ(state_bytes(WeightRule::muon, optim, DType::f32), 4);
  EXPECT_EQ(state_bytes(WeightRule::adamw, optim, DType::bf16), 12);
  EXPECT_EQ(state_bytes(WeightRule::muon, optim, DType::bf16), 8);
}

TEST(WeightRule, MomentsInBf16TakeHalf) {
  OptimConfig optim;
  optim.moments = MomentType::bf16;
  EXPECT_EQ(state_bytes(WeightRule::adamw, optim, DType::f32), 4);
  EXPECT_EQ(state_bytes(WeightRule::muon, optim, DType::f32), 2);
  EXPECT_EQ(state_bytes(WeightRule::adamw, optim, DType::bf16), 8);
  EXPECT_EQ(state_bytes(WeightRule::muon, optim, DType::bf16), 6);
  // AdamW reads and writes two states, Muon its momentum twice: once in each half of the step.
  for (const DType type : {DType::f32, DType::bf16}) {
    EXPECT_EQ(update_bytes(WeightRule::adamw, {}, type) - update_bytes(WeightRule::adamw, optim, type), 8);
    EXPECT_EQ(update_bytes(WeightRule::muon, {}, type) - update_bytes(WeightRule::muon, optim, type), 8);
  }
  EXPECT_EQ(update_bytes(WeightRule::adamw, {}, DType::bf16), 30);
}

}  // namespace
}  // namespace lyceum
