#include "train/run/start_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/tiny_run.h"

namespace lyceum {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

RankResources rank_on(const std::string& host, int local_rank) {
  return {.host = host,
          .cores = "0-3",
          .local_rank = local_rank,
          .threads = 4,
          .memory = 8e9,
          .device = "cpu",
          .processor = "EPYC"};
}

std::unique_ptr<RunSetup> setup_with(std::vector<RankResources> resources) {
  auto setup = make_setup(ProcessGroup::self(), {});
  setup->resources = std::move(resources);
  return setup;
}

TEST(RankLines, HaveARowPerRank) {
  unsetenv("SLURM_JOB_ID");
  EXPECT_THAT(rank_lines(*setup_with({rank_on("n1", 0), rank_on("n1", 1), rank_on("n2", 0)})),
              testing::ElementsAre("rank  host  local  cores  threads   memory  device",
                                   "   0  n1        0  0-3          4  8.00 GB  cpu",
                                   "   1  n1        1  0-3          4  8.00 GB  cpu",
                                   "   2  n2        0  0-3          4  8.00 GB  cpu"));
}

TEST(RankLines, FoldManyRanksToARowPerHost) {
  std::vector<RankResources> resources;
  for (int rank = 0; rank < 64; ++rank)
    resources.push_back(rank_on(rank < 40 ? "n1" : "n2", rank < 40 ? rank : rank - 40));
  EXPECT_THAT(rank_lines(*setup_with(resources)),
              testing::ElementsAre(" rank  host  local  cores  threads   memory  device",
                                   " 0-39  n1     0-39  0-3          4  8.00 GB  cpu",
                                   "40-63  n2     0-23  0-3          4  8.00 GB  cpu"));
}

TEST(RankLines, NameTheNetworkOfNcclOnSeveralHosts) {
  const auto last_line = [](const std::vector<std::pair<std::string, std::string>>& hosts_and_networks) {
    std::vector<RankResources> resources;
    for (const auto& [host, network] : hosts_and_networks) {
      resources.push_back(rank_on(host, 0));
      resources.back().network = network;
    }
    return rank_lines(*setup_with(resources)).back();
  };
  EXPECT_EQ(last_line({{"n1", "interface ib0"}, {"n1", "interface ib0"}, {"n2", "interface ib0"}}),
            "network    NCCL: interface ib0 on all 2 hosts");
  EXPECT_EQ(last_line({{"n1", "interface ib0"}, {"n2", "interface eth0"}, {"n3", "interface ib0"}}),
            "network    NCCL: interface ib0 on n1, n3 · interface eth0 on n2");
  EXPECT_EQ(last_line({{"a", "x"}, {"b", "x"}, {"c", "x"}, {"d", "x"}, {"e", "x"}, {"f", "y"}}),
            "network    NCCL: x on a, b, c, d and 1 more · y on f");
  EXPECT_THAT(last_line({{"n1", "interface ib0"}, {"n1", "interface ib0"}}), testing::StartsWith("   1  n1"));
  EXPECT_THAT(last_line({{"n1", ""}, {"n2", ""}}), testing::StartsWith("   1  n2"));
}

Config four_experts() {
  Config config;
  config.model.layers = 3;
  config.model.hidden = 10;
  config.model.first_dense_layers = 1;
  config.moe.experts = 4;
  config.moe.expert_sizes = {10, 30, 20, 20};
  config.balance.device_groups = 2;
  return config;
}

TEST(PlacementLines, HaveExpertsParametersAndShares) {
  const Config config = four_experts();
  EXPECT_THAT(
      placement_lines(config, place_all_experts(config, 2, {}), {}),
      ElementsAre(
          "expert rank  experts  parameters  FLOPs / mean", "          0  0, 1         2.40 k         1.000",
          "          1  2, 3         2.40 k         1.000",
          "placement  contiguous, assuming an even load: the busiest of 2 expert ranks has 1.000 times the mean "
          "FLOPs, 1.000 in the worst of 2 layers"));
}

TEST(PlacementLines, SayThatExpertsHaveMoved) {
  const Config config = four_experts();
  std::vector<MixturePlacement> placements = place_all_experts(config, 2, {});
  for (MixturePlacement& layer : placements) {
    layer.ranks = Placement::of_owners({0, 1, 0, 1}, 2);
    std::swap(layer.ranks.order[0], layer.ranks.order[1]);
  }
  const std::vector<std::string> lines = placement_lines(config, placements, {});
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[1], HasSubstr("0, 2 "));
  EXPECT_THAT(lines[2], HasSubstr("1, 3 "));
  EXPECT_THAT(lines[3], HasSubstr("placement  contiguous with moves, assuming an even load"));
}

TEST(PlacementLines, CountParametersInTheWidthThatExpertsWorkIn) {
  Config config = four_experts();
  config.moe.latent_hidden = 5;
  EXPECT_THAT(placement_lines(config, place_all_experts(config, 2, {}), {})[1], HasSubstr("1.20 k"));
}

TEST(PlacementLines, UseMeasuredTokens) {
  Config config = four_experts();
  config.parallel.placement = PlacementKind::cost;
  // Layer 1: FLOPs 10, 30, 200, 20, so the third expert has a rank for itself. Layer 2: 400, 30, 20, 20.
  const std::vector<ExpertLoad> load{{{1}, {1, 1, 10, 1}}, {{2}, {40, 1, 1, 1}}};
  const std::vector<MixturePlacement> placements = place_all_experts(config, 2, load);
  ASSERT_THAT(placements, SizeIs(2));
  EXPECT_EQ(placements[0].id, MixtureId{1});
  EXPECT_EQ(placements[0].ranks.owner, (std::vector<int>{1, 1, 0, 1}));
  EXPECT_EQ(placements[1].ranks.owner, (std::vector<int>{0, 1, 1, 1}));
  const std::vector<std::string> lines = placement_lines(config, placements, load);
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[1], HasSubstr("1 per layer"));
  EXPECT_THAT(lines[2], HasSubstr("3 per layer"));
  EXPECT_THAT(lines[3], HasSubstr("cost, by the measured load"));
  EXPECT_THAT(lines[3],
              HasSubstr("1.620 times the mean FLOPs, 1.702 in the worst of 2 layers"));  // 200 / 130, 400 / 235
}

TEST(PlacementLines, AreShortForManyRanksAndNoneWithoutExperts) {
  Config config = four_experts();
  config.moe.experts = 40;
  config.moe.expert_sizes = std::vector<std::int64_t>(40, 3);
  EXPECT_THAT(placement_lines(config, place_all_experts(config, 40, {}), {}), SizeIs(1));
  config.moe = {};
  EXPECT_THAT(placement_lines(config, place_all_experts(config, 1, {}), {}), SizeIs(0));
}

TEST(PlacementLines, LeaveOutExpertsWithoutWeights) {
  Config config = four_experts();
  config.moe.zero_experts = 2;
  config.moe.copy_experts = 1;
  config.parallel.placement = PlacementKind::cost;
  const std::vector<ExpertLoad> load{{{1}, {1, 1, 10, 1, 50, 60, 70}}, {{2}, {1, 1, 10, 1, 50, 60, 70}}};
  const std::vector<std::string> lines = placement_lines(config, place_all_experts(config, 2, load), load);
  ASSERT_THAT(lines, SizeIs(4));  // FLOPs 10, 30, 200, 20: the third expert has a rank for itself
  EXPECT_THAT(lines[1], AllOf(HasSubstr("2 "), HasSubstr("1.20 k"), HasSubstr("1.538")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("0, 1, 3"), HasSubstr("3.60 k"), HasSubstr("0.462")));
}

}  // namespace
}  // namespace lyceum
