#include <gtest/gtest.h>

#include "config/check.h"
#include "config/impossible.h"
#include "support/latent_model.h"

namespace lyceum {
namespace {

TEST(QkClipConfig, ImpossibleModelsAreReported) {
  expect_each_reported({
      {[](Config& c) { c.optim.qk_clip = -1; }, {"optim.qk_clip = -1: must be"}},
      {[](Config& c) {
         c.optim.qk_clip = 100;
         c.model.qk_norm = QkNormKind::head;
       },
       {"optim.qk_clip = 100 has no effect with model.qk_norm = head", "set it to 0"}},
      {[](Config& c) {
         c.optim.qk_clip = 100;
         c.model.attention_weights = AttentionWeights::stick_breaking;
       },
       {"optim.qk_clip = 100 with model.attention_weights = stick_breaking", "set it to 0"}},
      {[](Config& c) {
         c.optim.qk_clip = 100;
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 4, .top_k = 2, .gates = {}};
       },
       {"optim.qk_clip = 100 with model.attention = moa", "set it to 0"}},
      {[](Config& c) {
         c.optim.qk_clip = 100;
         c.optim.train_only = {"model/layers/*"};
       },
       {"optim.qk_clip = 100 with optim.train_only", "set it to 0"}},
  });
}

TEST(QkClipConfig, OtherModelsAreNot) {
  Config config;
  config.optim.qk_clip = 100;
  EXPECT_TRUE(contradictions(config, 1).empty());
  config.optim.rule = UpdateRuleName::muon;
  config.optim.ema = 0.9;
  config.model.sinks = true;
  config.model.window = 8;
  EXPECT_TRUE(contradictions(config, 1).empty());
  config.model.sinks = false;
  make_latent(config.model, 5);
  EXPECT_TRUE(contradictions(config, 1).empty());
}

}  // namespace
}  // namespace lyceum
