#include "model/routing/rank_imbalance.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lyceum {
namespace {

RoutingSums load_of(const MixtureId& id, std::vector<std::int64_t> counts, std::vector<std::int64_t> dropped = {}) {
  return {.id = id,
          .top_k = 1,
          .experts = std::ssize(counts),
          .counts = std::move(counts),
          .probability = {},
          .dropped = std::move(dropped)};
}

TEST(RankImbalance, IsThatOfTheFlopsOfExpertsWithWeights) {
  const std::vector<Mixture> mixtures{{.id = {1}, .widths = {10, 10, 20, 20}},
                                      {.id = {2, Site::attention}, .widths = {5, 5}},
                                      {.id = {2}, .widths = {10, 10, 0}, .zeros = 1}};
  const std::vector<MixturePlacement> placement{{{1}, Placement::of_owners({0, 1, 1, 0}, 2)},
                                                {{2}, Placement::contiguous(2, 2)}};
  // Layer 1: FLOPs 30 · 10 + 5 · 20 and 10 · 10 + (20 − 5) · 20, mean 400. Layer 2: 10 · 10 and 30 · 10, mean 200.
  const std::vector<RoutingSums> loads{load_of({1}, {30, 10, 20, 5}, {0, 0, 5, 0}),
                                       load_of({2, Site::attention}, {9, 1}), load_of({2}, {10, 30, 100})};
  const RankImbalance imbalance = rank_imbalance(mixtures, placement, loads);
  EXPECT_DOUBLE_EQ(imbalance.mean, (1.0 + 1.5) / 2);
  EXPECT_DOUBLE_EQ(imbalance.worst, 1.5);
}

/// A replica on rank 1 takes 10 of the 50 tokens of expert 0: the FLOPs of the ranks in layer 1, 500 and 300, become
/// equal.
TEST(RankImbalance, CountsReplicasOnTheirRanks) {
  const std::vector<Mixture> mixtures{{.id = {1}, .widths = {10, 10}}, {.id = {2}, .widths = {10, 10}}};
  const std::vector<MixturePlacement> placement{{{1}, Placement::contiguous(2, 2)}, {{2}, Placement::contiguous(2, 2)}};
  const std::vector<RoutingSums> loads{load_of({1}, {50, 30}), load_of({2}, {10, 30})};
  const std::vector<MovedFlops> moved{{{1}, {-100, 100}}};
  EXPECT_DOUBLE_EQ(rank_imbalance(mixtures, placement, loads).mean, (1.25 + 1.5) / 2);
  const RankImbalance imbalance = rank_imbalance(mixtures, placement, loads, moved);
  EXPECT_DOUBLE_EQ(imbalance.mean, (1.0 + 1.5) / 2);
  EXPECT_DOUBLE_EQ(imbalance.worst, 1.5);
  EXPECT_THROW(rank_imbalance(mixtures, placement, loads, std::vector<MovedFlops>{{{1}, {0, 0, 0}}}), Error);
}

TEST(RankImbalance, IsOneWithoutTokens) {
  const std::vector<Mixture> mixtures{{.id = {0}, .widths = {4, 4}}};
  const std::vector<MixturePlacement> placement{{{0}, Placement::contiguous(2, 2)}};
  EXPECT_EQ(rank_imbalance(mixtures, placement, std::vector{load_of({0}, {0, 0})}).worst, 1);
  EXPECT_EQ(rank_imbalance(mixtures, {}, {}).mean, 1);
  EXPECT_THROW(rank_imbalance(mixtures, placement, std::vector{load_of({1}, {1, 1})}), Error);
}

}  // namespace
}  // namespace lyceum
