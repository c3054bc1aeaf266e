#include "model/routing/mixture.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "model/routing/balance_loss.h"
#include "model/routing/routing_statistics.h"

namespace lyceum {
namespace {

Config two_experts() {
  Config config;
  config.model = {.layers = 3, .hidden = 12, .heads = 2, .kv_heads = 2, .head_dim = 4, .ffn_hidden = 7};
  config.model.first_dense_layers = 1;
  config.moe.experts = 2;
  config.moe.expert_sizes = {3, 9};
  config.moe.shared_experts = 2;
  config.moe.expert_hidden = 5;
  return config;
}

TEST(Mixtures, OfExperts) {
  const Config config = two_experts();
  EXPECT_TRUE(mixtures_of(config, 0).empty());
  EXPECT_EQ(dense_width(config, 0), 7);
  const Mixture experts = routed_experts(config, 1).value();
  EXPECT_EQ(experts.id, (MixtureId{1, Site::ffn}));
  EXPECT_EQ(experts.widths, (std::vector<std::int64_t>{3, 9}));
  EXPECT_EQ(experts.k, 1);
  EXPECT_EQ(experts.always_on, 2);
  EXPECT_TRUE(experts.placed());
  EXPECT_EQ(dense_width(config, 1), 10) << "both shared experts";
  EXPECT_EQ(mixtures_of(config).size(), 2u);
  EXPECT_THROW(mixture_of(config, {0, Site::ffn}), Error);
}

TEST(Mixtures, OfExpertsWithoutWeights) {
  Config config = two_experts();
  config.moe.zero_experts = 1;
  config.moe.copy_experts = 2;
  const Mixture experts = routed_experts(config, 1).value();
  EXPECT_EQ(experts.widths, (std::vector<std::int64_t>{3, 9, 0, 0, 0}));
  EXPECT_EQ(experts.weighted(), 2);
  EXPECT_EQ(experts.zeros, 1);
  EXPECT_EQ(experts.copies, 2);
}

TEST(Mixtures, LayersMayHaveDifferentNumbersOfExperts) {
  Config config = two_experts();
  config.moe.expert_sizes.clear();
  EXPECT_EQ(fewest_experts(config), 2);
  config.moe.experts_of_layers = {4, 3};
  EXPECT_FALSE(routed_experts(config, 0));
  EXPECT_EQ(routed_experts(config, 1)->widths, (std::vector<std::int64_t>{5, 5, 5, 5}));
  EXPECT_EQ(routed_experts(config, 2)->choices(), 3);
  EXPECT_EQ(fewest_experts(config), 3);
  EXPECT_EQ(no_routing(config)[1].experts, 3);
  EXPECT_EQ(fewest_experts({}), 0);
}

TEST(Mixtures, LayersMayHaveDifferentNumbersOfAttentionExperts) {
  Config config = two_experts();
  config.model.attention = AttentionKind::experts;
  config.attention_experts = {.count = 4, .top_k = 2, .count_of_layers = {4, 2, 3}, .gates = {}};
  config.mtp.depth = 1;
  for (const auto& [layer, count] : {std::pair{0, 4}, {1, 2}, {2, 3}, {3, 3}}) {  // a module is like the last layer
    EXPECT_EQ(attention_experts(config, layer)->choices(), count) << layer;
  }
}

TEST(Mixtures, WithoutRoutedExpertsSharedOnesAreTheFfn) {
  Config config = two_experts();
  config.moe.experts = 0;
  config.moe.expert_sizes.clear();
  EXPECT_TRUE(mixtures_of(config).empty());
  EXPECT_EQ(dense_width(config, 2), 10);
  config.moe.shared_experts = 0;
  EXPECT_EQ(dense_width(config, 2), 7);
}

/// One layer has attention experts and FFN experts; they are listed in forward order.
TEST(Mixtures, SeveralOfALayer) {
  Config config = two_experts();
  config.model.attention = AttentionKind::experts;
  config.attention_experts.count = 3;
  const std::vector<Mixture> mixtures = mixtures_of(config, 1);
  ASSERT_EQ(mixtures.size(), 2u);
  EXPECT_EQ(mixtures[0].id, (MixtureId{1, Site::attention}));
  EXPECT_EQ(mixtures[0].widths, (std::vector<std::int64_t>{8, 8, 8}));
  EXPECT_FALSE(mixtures[0].placed());
  EXPECT_EQ(mixtures[1].id, (MixtureId{1, Site::ffn}));
  EXPECT_LT(mixtures[0].id, mixtures[1].id);
  EXPECT_EQ(mixtures_of(config).size(), 5u);
  const std::vector<RoutingSums> none = no_routing(config);
  ASSERT_EQ(none.size(), 5u);
  EXPECT_EQ(none[1].id, mixtures[0].id);
  EXPECT_EQ(none[1].counts.size(), 3u);
}

TEST(Mixtures, StagesReadTokensAtTheEndsOrToHashThem) {
  Config config = two_experts();
  config.model.layers = 4;
  const std::vector<Range> stages{{0, 1}, {1, 1}, {2, 2}};
  const auto readers = [&] {
    std::string text;
    for (const Range& blocks : stages) text += reads_tokens(config, parts_of(config, blocks)) ? 'r' : '-';
    return text;
  };
  EXPECT_EQ(readers(), "r-r");
  config.moe.router = RouterKind::hash;
  EXPECT_EQ(readers(), "rrr");
  config.model.first_dense_layers = 2;
  EXPECT_EQ(readers(), "r-r");
}

TEST(Mixtures, OfSubDimensions) {
  Config config = two_experts();
  config.moe = {};
  config.sub_dimensions = {.attention = 4, .ffn = 3, .active = 3, .shared = 1};
  const std::vector<Mixture> mixtures = mixtures_of(config, 0);
  ASSERT_EQ(mixtures.size(), 2u);
  EXPECT_EQ(mixtures[0].widths, (std::vector<std::int64_t>{3, 3, 3, 3}));
  EXPECT_EQ(mixtures[0].k, 2);
  EXPECT_EQ(mixtures[0].always_on, 1);
  EXPECT_FALSE(mixtures[1].placed());
}

/// If all active sub-dimensions are shared, there is a router but nothing to choose, count or balance.
TEST(Mixtures, OfSharedSubDimensionsOnlyAreNotListed) {
  Config config = two_experts();
  config.moe = {};
  config.sub_dimensions = {.attention = 4, .ffn = 3, .active = 3, .shared = 3};
  EXPECT_TRUE(mixtures_of(config).empty());
  EXPECT_EQ(sub_dimensions_of(config, {0, Site::ffn})->k, 0);
}

TEST(LossKinds, AreThoseWithAWeight) {
  using enum LossKind;
  using Kinds = std::vector<LossKind>;
  Config config = two_experts();
  EXPECT_EQ(loss_kinds(config), Kinds{});
  config.balance.device = 0.1;
  EXPECT_EQ(loss_kinds(config), (Kinds{expert_balance, device_balance}));
  config.balance = {.z_loss = 0.1};
  EXPECT_EQ(loss_kinds(config), Kinds{z});
  config.balance = {.expert = 0.1, .mutual_information = 0.1, .concentration = 0.1};
  EXPECT_EQ(loss_kinds(config), (Kinds{expert_balance, device_balance, mutual_information, concentration}));
  config.moe.experts = 0;
  EXPECT_EQ(loss_kinds(config), Kinds{}) << "nothing routes";
  config.model.z_loss = 0.01;
  EXPECT_EQ(loss_kinds(config), Kinds{LossKind::head_z});
  config.model.dropout.kind = DropoutKind::concrete;
  EXPECT_EQ(loss_kinds(config), Kinds{LossKind::head_z}) << "the rate is 0";
  config.model.dropout.rate = 0.1;
  EXPECT_EQ(loss_kinds(config), (Kinds{LossKind::dropout, LossKind::head_z}));
  config.model.consistency = 5;
  EXPECT_EQ(loss_kinds(config), (Kinds{LossKind::dropout, LossKind::head_z, LossKind::consistency}));
}

TEST(LossTable, HasARowOfLayersForEachKind) {
  const LossTable table({LossKind::z, LossKind::concentration}, 3);
  EXPECT_EQ(table.size(), 6);
  EXPECT_EQ(table.index(LossKind::z, 2), 2);
  EXPECT_EQ(table.index(LossKind::concentration, 0), 3);
  EXPECT_THROW(table.index(LossKind::concentration, 3), Error);
  EXPECT_THROW(table.index(LossKind::expert_balance, 0), Error);
}

TEST(RoutingStatistics, ImbalanceCountsAllChoicesTogether) {
  EXPECT_EQ(imbalance({.id = {}, .top_k = 2, .experts = 2, .counts = {3, 1, 0, 4}, .probability = {}}), 1.25);
  EXPECT_EQ(imbalance({.id = {}, .top_k = 1, .experts = 2, .counts = {0, 0}, .probability = {}}), 0);
}

}  // namespace
}  // namespace lyceum
