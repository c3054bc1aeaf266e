#include "config/router_penalty.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/check.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

/// Makes the attention of sparse() a mixture of 20 experts.
void add_penalised_attention(Config& config) {
  config.model.attention = AttentionKind::experts;
  config.attention_experts = {.count = 20, .gates = {}};
  config.optim.router_penalty = 0.1;
}

TEST(RouterPenalty, IsRefusedWithoutRowsToPenalise) {
  expect_each_reported({
      {[](Config& c) { c.optim.router_penalty_from = 1; }, {"optim.router_penalty_from = 1 has no effect"}},
      {[](Config& c) { c.optim.router_penalty_from_attention = 0; },
       {"optim.router_penalty_from_attention = 0 has no effect"}},
      {[](Config& c) { c.optim.router_penalty_from_attention = -2; }, {"must be >= -1"}},
      {[](Config& c) { c.optim.router_penalty = 0.1, c.optim.router_penalty_from = 15; },
       {"optim.router_penalty_from = 15: routers have 15 rows, counted from 0"}},
      {[](Config& c) { c.optim.router_penalty = 0.1, c.optim.router_penalty_from_attention = 3; },
       {"optim.router_penalty_from_attention = 3 with no router in attention: set it to -1"}},
      {[](Config& c) { c.moe = {}, c.optim.router_penalty = 0.1; },
       {"optim.router_penalty = 0.1 with no router that chooses: set optim.router_penalty = 0, or moe.experts"}},
      {[](Config& c) {
         c.moe = {}, c.sub_dimensions = {.ffn = 4, .active = 3, .shared = 3}, c.optim.router_penalty = 0.1;
       },
       {"optim.router_penalty = 0.1 with no router that chooses"}},
      {[](Config& c) { add_penalised_attention(c), c.optim.router_penalty_from = 20; },
       {"optim.router_penalty_from = 20: routers have 20 rows, counted from 0"}},
      {[](Config& c) { add_penalised_attention(c), c.optim.router_penalty_from_attention = 21; },
       {"optim.router_penalty_from_attention = 21: routers of attention have 20 rows: set 20 to penalise none of "
        "them"}},
      {[](Config& c) {
         add_penalised_attention(c), c.optim.router_penalty_from = 16, c.optim.router_penalty_from_attention = 16;
       },
       {"optim.router_penalty_from = 16: routers of FFNs have 15 rows: set 15 to penalise none of them"}},
      {[](Config& c) {
         add_penalised_attention(c), c.optim.router_penalty_from = 15, c.optim.router_penalty_from_attention = 20;
       },
       {"optim.router_penalty_from = 15 and optim.router_penalty_from_attention = 20", "none is penalised"}},
  });
}

TEST(RouterPenalty, HasItsOwnFirstRowInAttention) {
  Config config = sparse();
  add_penalised_attention(config);
  config.optim.router_penalty_from = 7;
  EXPECT_EQ(first_penalised_row(config.optim, Site::attention), 7);
  EXPECT_EQ(first_penalised_row(config.optim, Site::ffn), 7);
  config.optim.router_penalty_from = 15;
  config.optim.router_penalty_from_attention = 16;
  EXPECT_EQ(first_penalised_row(config.optim, Site::attention), 16);
  EXPECT_EQ(first_penalised_row(config.optim, Site::ffn), 15);
  EXPECT_THAT(contradictions(config, 1), testing::IsEmpty());
}

TEST(RouterPenalty, CountsTheRowsOfTheLargestRouterOfEachHalf) {
  Config config = sparse();
  EXPECT_EQ(router_rows(config, Site::ffn), 15);
  EXPECT_EQ(router_rows(config, Site::attention), 0);
  config.moe.zero_experts = 2;
  EXPECT_EQ(router_rows(config, Site::ffn), 17);
  config.model.layers = 2;
  config.model.attention = AttentionKind::experts;
  config.attention_experts = {.count_of_layers = {4, 6}, .gates = {}};
  EXPECT_EQ(router_rows(config, Site::attention), 6);
  EXPECT_THAT(contradictions(config, 1), testing::IsEmpty()) << "the list replaces a count of 0";
  config = {};
  config.sub_dimensions = {.attention = 4, .ffn = 8, .active = 3, .shared = 2};
  EXPECT_EQ(router_rows(config, Site::attention), 4);
  EXPECT_EQ(router_rows(config, Site::ffn), 8);
  config.sub_dimensions.shared = 3;
  EXPECT_EQ(router_rows(config, Site::attention), 0);
  EXPECT_EQ(router_rows(config, Site::ffn), 0);
}

}  // namespace
}  // namespace lyceum
