#include "config/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "config/binding.h"
#include "config/impossible.h"
#include "core/error.h"
#include "core/gpu.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(ConfigProblems, impossible_training_is_reported) {
  expect_each_reported({
      {[](Config& c) { c.run.steps = 0; }, {"run.steps = 0: must be >= 1"}},
      {[](Config& c) { c.optim.min_lr = 1; }, {"optim.min_lr = 1 is above optim.lr = 0.001"}},
      {[](Config& c) { c.optim.warmup_steps = 9, c.optim.warmup_from = 1; },
       {"optim.warmup_from = 1 is above optim.lr = 0.001"}},
      {[](Config& c) { c.optim.min_lr = -1; }, {"optim.min_lr = -1: must be in [0, 1e+30]"}},
      {[](Config& c) { c.optim.beta1 = 1; }, {"optim.beta1 = 1: must be in [0, 1)"}},
      {[](Config& c) { c.optim.beta2 = -0.5; }, {"optim.beta2 = -0.5: must be in [0, 1)"}},
      {[](Config& c) { c.optim.eps = 0; }, {"optim.eps = 0: must be in [1e-30, 1]"}},
      {[](Config& c) { c.data.valid_fraction = 1; }, {"data.valid_fraction = 1: must be in [0, 1)"}},
      {[](Config& c) { c.eval.every = 5; }, {"eval.every = 5 with no data to validate on"}},
      {[](Config& c) { c.run.prometheus = "a.txt"; }, {"run.prometheus = a.txt", ".prom"}},
      {[](Config& c) { c.run.trace_steps = "5-4"; }, {"run.trace_steps = 5-4", "such as 20-22"}},
      {[](Config& c) { c.run.trace_steps = "0-4"; }, {"run.trace_steps = 0-4"}},
      {[](Config& c) { c.run.trace_steps = "3-"; }, {"run.trace_steps = 3-"}},
      {[](Config& c) { c.run.trace_steps = "all"; }, {"run.trace_steps = all"}},
      {[](Config& c) { c.run.trace_steps = "1-101"; }, {"run.trace_steps = 1-101", "at most 100 steps"}},
      {[](Config& c) { c.run.gemm_file = "a.json"; }, {"run.gemm_file = a.json", "run.gemm_choice = timed"}},
      {[](Config& c) { c.checkpoint.keep = -1; }, {"checkpoint.keep = -1: must be >= 0"}},
      {[](Config& c) { c.run.dir = ""; }, {"run.dir = empty: must not be empty"}},
  });
}

TEST(ConfigProblems, are_reported_all_at_once) {
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
  config.model.head_dim = 50;  // a width other than hidden / heads is allowed
  config.model.kv_heads = 2;
  config.batch.global = 21;
  config.parallel.expert = 7;
  config.batch.seq_len = 1;
  config.moe.top_k = 15;
  config.balance.device_groups = 15;
  EXPECT_THAT(problems(config, 7), IsEmpty());
  config.model.attention_weights = AttentionWeights::stick_breaking;
  config.model.head_dim = 51;  // odd, which only rotary positions do not allow
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
  EXPECT_EQ(config.model.ffn_hidden, 3413);  // the 2B models of DeepSeekMoE
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
  EXPECT_EQ(wide.model.ffn_hidden, 10923);  // the 145B models of DeepSeekMoE
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
      {"hash-small.ini", {1, 2, 4, 8, 16}},   {"dense-small.ini", {1, 2, 4, 8, 16}},
      {"mtp-small.ini", {1, 2, 4, 8, 16}},    {"smoe-dropout-small.ini", {1, 2, 4, 8, 16}},
      {"thor-small.ini", {1, 2, 4, 8, 16}}};
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
