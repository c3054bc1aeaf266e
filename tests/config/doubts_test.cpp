#include "config/doubts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "config/binding.h"
#include "config/check.h"

namespace lyceum {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

Config eight_experts() {
  Config config;
  config.moe.experts = 8;
  config.moe.top_k = 2;
  config.moe.expert_hidden = 64;
  return config;
}

std::vector<std::string> doubts_of(const Config& given) {
  Config resolved = given;
  resolve(resolved, 1);
  return doubts(given, resolved);
}

std::vector<std::string> ineffective(const Config& given) {
  Config resolved = given;
  resolve(resolved, 1);
  return ineffective_keys(given, resolved);
}

TEST(Doubts, ThereAreNoneAboutUsualRuns) {
  EXPECT_THAT(doubts_of({}), IsEmpty());
  Config config = eight_experts();
  config.balance = {.expert = 0.01, .device = 0.1, .device_groups = 4};
  config.model.first_dense_layers = 1;
  config.moe.shared_experts = 2;
  EXPECT_THAT(doubts_of(config), IsEmpty());
}

TEST(Doubts, ThereAreNoneAboutTheExamples) {
  const std::filesystem::path configs = std::filesystem::path(LYCEUM_SOURCE_DIR) / "configs";
  int files = 0;
  for (const std::filesystem::path& folder : {configs, configs / "papers"}) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() != ".ini") continue;
      const std::vector<std::string> argument{"--config=" + file.path().string()};
      EXPECT_THAT(doubts_of(load_config(argument).config), IsEmpty()) << file.path();
      ++files;
    }
  }
  EXPECT_GT(files, 10);
}

TEST(Doubts, NameKeysOfRoutersInAModelWithoutAny) {
  Config dense;
  dense.moe.top_k = 3;
  dense.moe.router = RouterKind::sigmoid;
  dense.balance = {.expert = 0.01, .bias_rate = 0.1};
  EXPECT_THAT(ineffective(dense), ElementsAre("moe.top_k", "moe.router", "balance.expert", "balance.bias_rate"));
  EXPECT_THAT(doubts_of(dense), ElementsAre(HasSubstr("no effect with the other keys: moe.top_k, moe.router, ")));

  Config no_sparse_layer = eight_experts();
  no_sparse_layer.model.first_dense_layers = no_sparse_layer.model.layers;
  no_sparse_layer.balance.expert = 0.01;
  EXPECT_THAT(ineffective(no_sparse_layer), Contains("balance.expert"));

  Config attention;
  attention.model.attention = AttentionKind::experts;
  attention.attention_experts.count = 4;
  attention.attention_experts.top_k = 2;
  attention.balance = {.expert = 0.01, .device = 0.1};
  EXPECT_THAT(ineffective(attention), ElementsAre("balance.device"));
}

TEST(Doubts, NameKeysOfAScalingThatScalesNothing) {
  Config config;
  config.model.positions.scaling = RopeScalingKind::yarn;
  config.model.positions.original_length = 64;
  EXPECT_THAT(ineffective(config), ElementsAre("model.rope_scaling", "model.rope_original_length"));
  config.model.positions.factor = 4;
  EXPECT_THAT(ineffective(config), IsEmpty());
}

TEST(Doubts, LeaveOutKeysOfRoutersOfSubDimensions) {
  Config config;
  config.sub_dimensions = {.ffn = 4, .active = 2};
  config.balance = {.expert = 0.1, .z_loss = 0.1, .bias_rate = 0.1};
  config.moe.even_routing = true;
  config.model.consistency = 1;
  EXPECT_THAT(doubts_of(config), ElementsAre(EndsWith(": balance.bias_rate")));
}

TEST(Doubts, LeaveOutKeysThatALaterStageUses) {
  Config config;
  config.model.positions.scaling = RopeScalingKind::yarn;
  config.model.positions.original_length = 64;
  config.optim.schedule = LearningRateSchedule::constant;
  config.optim.min_lr = 1e-5;
  config.training_stages = {
      {.from_step = 3, .values = {{"model.rope_factor", "4"}, {"optim.schedule", "wsd"}, {"optim.lr", "20"}}}};
  EXPECT_THAT(doubts_of(config), ElementsAre(HasSubstr("optim.lr * optim.weight_decay = 2")));
}

TEST(Doubts, LeaveOutWhatAConversionWrites) {
  Config dense, sparse = eight_experts();
  resolve(dense, 1);
  resolve(sparse, 1);
  EXPECT_THAT(doubts_of(dense), IsEmpty());
  EXPECT_THAT(doubts_of(sparse), IsEmpty());
}

TEST(Doubts, AreAboutValuesWithWhichNothingIsLearnt) {
  const auto doubted = [](const std::function<void(Config&)>& change) {
    Config config = eight_experts();
    change(config);
    return doubts_of(config);
  };
  const auto one_gate = [](Config& config) {
    config.moe.top_k = 1;
    config.moe.gates = Gates::renormalized;
  };
  EXPECT_THAT(doubted(one_gate), ElementsAre(HasSubstr("moe.gates = renormalized with moe.top_k = 1")));
  const auto copies = [](Config& config) { config.model.consistency = 1; };
  EXPECT_THAT(doubted(copies), ElementsAre(HasSubstr("model.consistency with equal copies")));
  EXPECT_THAT(doubted([](Config& config) { config.model.init_std = 0; }), ElementsAre(HasSubstr("init_std = 0")));
  EXPECT_THAT(doubted([](Config& config) {
                config.optim.lr = 0.5;
                config.optim.weight_decay = 4;
              }),
              ElementsAre(HasSubstr("optim.lr * optim.weight_decay = 2")));
}

}  // namespace
}  // namespace lyceum
