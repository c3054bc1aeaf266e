#include "config/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "config/continuation.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

/// Returns a change of sparse() to dropout of a kind with a rate of 0.1, followed by another change.
std::function<void(Config&)> with(DropoutKind kind, const std::function<void(Config&)>& change) {
  return [=](Config& c) {
    c.model.dropout = {.rate = 0.1, .kind = kind};
    change(c);
  };
}

void make_dense(Config& config) {
  config.moe = {};
  config.balance = {};
}

TEST(ConfigProblems, impossible_dropout_is_reported) {
  using enum DropoutKind;
  expect_each_reported({
      {[](Config& c) { c.model.dropout.rate = 1; }, {"model.dropout = 1: must be in [0, 1)"}},
      {[](Config& c) { c.model.dropout.rate = -0.1; }, {"model.dropout = -0.1"}},
      {[](Config& c) { c.model.dropout.block = 0; }, {"model.dropout_block = 0: must be in [1, 1024]"}},
      {with(block,
            [](Config& c) {
              c.batch.seq_len = 16;
              c.model.dropout.block = 17;
            }),
       {"model.dropout_block = 17 is more than batch.seq_len = 16"}},
      {with(concrete, [](Config&) {}), {"model.dropout_kind = concrete with moe.experts", "plain or block"}},
      {with(concrete,
            [](Config& c) {
              make_dense(c);
              c.model.attention = AttentionKind::experts;
              c.attention_experts = {.count = 4, .top_k = 2, .gates = {}};
            }),
       {"model.dropout_kind = concrete with model.attention = moa"}},
      {with(concrete,
            [](Config& c) {
              make_dense(c);
              c.sub_dimensions = {.attention = 4, .ffn = 4, .active = 2, .shared = 1};
            }),
       {"model.dropout_kind = concrete with sub_dimensions"}},
      {with(concrete,
            [](Config& c) {
              make_dense(c);
              c.optim.lora_rank = 4;
              c.optim.lora_targets = {"lm_head/weight"};
            }),
       {"model.dropout_kind = concrete with optim.lora_rank = 4: adapters freeze the rates", "plain or block"}},
  });
  for (const DropoutKind kind : {plain, concrete, block}) {
    Config config = sparse();
    if (kind == concrete) make_dense(config);
    config.model.dropout = {.rate = 0.1, .kind = kind};
    EXPECT_THAT(problems(config, 4), testing::IsEmpty());
  }
}

TEST(Dropout, MayChangeWhenARunContinues) {
  using enum DropoutKind;
  Config before = sparse();
  make_dense(before);
  resolve(before, 1);
  Config now = before;
  const auto roles = [&] {
    std::map<std::string, KeyRole> of_keys;
    for (const Change& change : changes(before, now)) of_keys.emplace(change.key, change.role);
    return of_keys;
  };
  using Roles = std::map<std::string, KeyRole>;
  now.model.dropout = {.rate = 0, .kind = concrete, .block = 3, .regularizer = 1};
  EXPECT_EQ(roles(), Roles()) << "nothing is dropped";
  now.model.dropout = {.rate = 0.1};
  EXPECT_EQ(roles(), (Roles{{"model.dropout", KeyRole::tuning}}));
  now.model.dropout = {.rate = 0.1, .kind = block};
  const Roles switched{{"model.dropout", KeyRole::tuning}, {"model.dropout_kind", KeyRole::tuning}};
  EXPECT_EQ(roles(), switched) << "on";
  std::swap(before, now);
  EXPECT_EQ(roles(), switched) << "off";
  now.model.dropout = {.rate = 0.1};
  EXPECT_EQ(roles(), (Roles{{"model.dropout_kind", KeyRole::tuning}}));
  before.model.dropout = now.model.dropout;
  now.model.dropout.block = 3;
  now.model.dropout.weight_regularizer = 1;
  EXPECT_EQ(roles(), Roles()) << "neither blocks nor learnt rates";
}

/// Learnt rates are tensors.
TEST(Dropout, CannotBeginOrEndToLearnRatesWhenARunContinues) {
  Config before = sparse();
  make_dense(before);
  before.model.dropout = {.rate = 0.1, .kind = DropoutKind::concrete};
  resolve(before, 1);
  Config now = before;
  now.model.dropout.rate = 0.2;
  EXPECT_THAT(changes(before, now), testing::IsEmpty()) << "the rates are those of the checkpoint";
  now.model.dropout.regularizer = 1;
  ASSERT_EQ(changes(before, now).size(), 1u);
  EXPECT_EQ(changes(before, now)[0].role, KeyRole::tuning);
  for (const DropoutConfig& other : {DropoutConfig(), DropoutConfig{.rate = 0.1}}) {
    now.model.dropout = other;
    for (int order = 0; order < 2; ++order) {
      const std::vector<Change> found = changes(before, now);
      const auto kind = std::ranges::find(found, "model.dropout_kind", &Change::key);
      ASSERT_NE(kind, found.end());
      EXPECT_EQ(kind->role, KeyRole::identity);
      std::swap(before, now);
    }
  }
}

}  // namespace
}  // namespace lyceum
