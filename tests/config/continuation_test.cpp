#include "config/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "config/check.h"

namespace lyceum {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

Config sparse_run() {
  Config config;
  config.moe.experts = 8;
  config.moe.top_k = 2;
  config.moe.expert_hidden = 64;
  return config;
}

/// Returns the keys of the changes after both are resolved, on one rank and on `ranks` ranks.
std::vector<std::string> changed(const std::function<void(Config&)>& before, const std::function<void(Config&)>& now,
                                 int ranks = 1) {
  Config old_config = sparse_run(), config = sparse_run();
  before(old_config);
  now(config);
  resolve(old_config, 1);
  resolve(config, ranks);
  std::vector<std::string> keys;
  for (const Change& change : changes(old_config, config)) keys.push_back(change.key);
  return keys;
}
void nothing(Config&) {}
void without_experts(Config& config) {
  config.moe = {};
  config.moe.router = RouterKind::noisy;
}

TEST(Changes, PlacementMattersWhereGroupsOfDevicesDo) {
  const auto of = [](double device, std::int64_t group_limit) {
    Config before = sparse_run();
    before.balance.device_groups = 4;
    before.balance.device = device;
    before.moe.group_limit = group_limit;
    Config now = before;
    now.parallel.placement = PlacementKind::cost;
    std::vector<KeyRole> roles;
    for (const Change& change : changes(before, now)) {
      EXPECT_EQ(change.key, "parallel.placement");
      roles.push_back(change.role);
    }
    return roles;
  };
  EXPECT_THAT(of(0, 0), IsEmpty());
  EXPECT_THAT(of(0.01, 0), ElementsAre(KeyRole::reported));
  EXPECT_THAT(of(0.01, 2), ElementsAre(KeyRole::identity));
  EXPECT_THAT(of(0, 2), ElementsAre(KeyRole::identity));
}

TEST(RoleOf, TellsWhatAnotherValueMakesOfARun) {
  for (const char* key : {"run.seed", "data.train", "data.order", "data.samples", "data.document_mask",
                          "data.valid_fraction", "batch.seq_len", "model.layers", "moe.top_k", "moe.capacity_factor",
                          "attention_experts.count", "sub_dimensions.ffn", "balance.expert", "optim.train_only",
                          "optim.router_penalty", "optim.router_penalty_from_attention"}) {
    EXPECT_EQ(role_of(key), KeyRole::identity) << key;
  }
  for (const char* key :
       {"optim.lr", "optim.schedule", "optim.warmup_steps", "batch.global", "balance.bias_rate", "run.precision"}) {
    EXPECT_EQ(role_of(key), KeyRole::tuning) << key;
  }
  for (const char* key : {"data.valid", "run.gemm_choice"}) EXPECT_EQ(role_of(key), KeyRole::reported) << key;
  for (const char* key :
       {"run.dir", "run.steps", "run.device", "run.log_every", "data.tokenizer", "data.changed", "data.chat",
        "data.end_tokens", "batch.micro", "model.recompute", "model.loss_chunk", "parallel.expert", "eval.every",
        "checkpoint.minutes", "routing.every", "optim.schedule_steps"}) {
    EXPECT_EQ(role_of(key), KeyRole::operation) << key;
  }
}

TEST(Changes, AreThoseThatHaveAnEffect) {
  EXPECT_THAT(changed(nothing, [](Config& c) { c.run.seed = 2; }), ElementsAre("run.seed"));
  EXPECT_THAT(changed(nothing, [](Config& c) { c.optim.lr = 2; }), ElementsAre("optim.lr"));
  EXPECT_THAT(changed([](Config& c) { c.balance.device = 0.1; },
                      [](Config& c) {
                        c.balance.device = 0.1;
                        c.balance.device_groups = 4;
                      }),
              ElementsAre("balance.device_groups"));
}

TEST(Changes, AreNoneWithoutEffect) {
  const std::vector<std::pair<std::function<void(Config&)>, std::function<void(Config&)>>> same = {
      {nothing, [](Config& c) { c.balance.device_groups = 4; }},            // no loss uses groups
      {nothing, [](Config& c) { c.balance.scope = BalanceScope::batch; }},  // no loss uses counts
      {nothing, [](Config& c) { c.moe.expert_sizes = std::vector<std::int64_t>(8, 64); }},
      {nothing,
       [](Config& c) {
         c.moe.experts_of_layers = {8, 8, 8, 8};
       }},
      {nothing, [](Config& c) { c.moe.top_k_start = 2; }},
      {nothing, [](Config& c) { c.moe.router_hidden = 7; }},
      {nothing, [](Config& c) { c.model.swiglu_limit = 5; }},  // belongs to another activation
      {nothing, [](Config& c) { c.model.swiglu_alpha = 2; }},
      {nothing, [](Config& c) { c.attention_experts.top_k = 3; }},
      {nothing, [](Config& c) { c.sub_dimensions.active = 3; }},
      {nothing, [](Config& c) { c.model.ffn_hidden = 77; }},  // every FFN consists of experts
      {nothing, [](Config& c) { c.model.head_dim = 64; }},    // equals the derived value
      {nothing, [](Config& c) { c.optim.decay_steps = 3; }},  // belongs to another schedule
      {[](Config& c) { c.moe = {}; }, without_experts},
      {[](Config& c) { c.data.valid = "v"; },
       [](Config& c) {
         c.data.valid = "v";
         c.data.valid_fraction = 0.1;
       }},
      {nothing, [](Config& c) { c.parallel.tensor = 2; }},
      {[](Config& c) { c.model.window = 9; },
       [](Config& c) {
         c.model.window = 9;
         c.model.window_layers = {1, 1};
       }},
  };
  for (std::size_t i = 0; i < same.size(); ++i) {
    EXPECT_THAT(changed(same[i].first, same[i].second), IsEmpty()) << i;
    EXPECT_THAT(changed(same[i].second, same[i].first), IsEmpty()) << i;
  }
}

TEST(Changes, LossesOfRoutersOfSubDimensionsMatter) {
  Config before, now;
  before.sub_dimensions = {.ffn = 4, .active = 2};
  before.balance = {.expert = 0.1, .z_loss = 0.1};
  now.sub_dimensions = before.sub_dimensions;
  now.balance = {.device = 0.1, .bias_rate = 0.1};  // only for experts
  now.moe.even_routing = true;
  std::vector<std::string> keys;
  for (const Change& change : changes(before, now)) keys.push_back(change.key);
  EXPECT_THAT(keys, UnorderedElementsAre("balance.expert", "balance.z_loss", "moe.even_routing"));
  before.sub_dimensions.shared = now.sub_dimensions.shared = 2;  // nothing to choose
  EXPECT_THAT(changes(before, now), IsEmpty());
}

TEST(Changes, GroupsThatFollowTheMeshAreReported) {
  Config before = sparse_run(), now = sparse_run();
  before.balance.device = now.balance.device = 0.1;
  now.parallel.expert = 4;
  resolve(before, 1);
  resolve(now, 4);
  const std::vector<Change> found = changes(before, now);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].key, "balance.device_groups");
  EXPECT_EQ(found[0].role, KeyRole::reported);
}

}  // namespace
}  // namespace lyceum
