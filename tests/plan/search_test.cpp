#include "plan/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "plan/variants.h"
#include "support/paper_models.h"

namespace lyceum {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Expects that every result fits, that it is planned with all its micro-batches, and that the fastest comes first.
void expect_sound(const SearchResult& result, int world, const Cluster& cluster) {
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const MeshPlan& plan = result.best[i].plan;
    EXPECT_LE(plan.peak_memory(), cluster.memory) << plan.text();
    EXPECT_LE(plan_mesh(plan.config, world, cluster).peak_memory(), cluster.memory) << plan.text();
    EXPECT_EQ(plan.timeline.shape.microbatches, micro_batches(plan.config, world));
    EXPECT_THAT(contradictions(plan.config, world), IsEmpty());
    EXPECT_FALSE(result.best[i].reason.empty());
    if (i > 0) {
      EXPECT_GE(plan.time->total(), result.best[i - 1].plan.time->total());
    }
  }
}

TEST(Search, FindsMeshesThatFitFastestFirst) {
  const Config config = paper("deepseekmoe-16b");
  const Cluster cluster = default_cluster(Precision::bf16);
  const SearchResult result = search_meshes(config, 64, cluster, {});
  ASSERT_GE(result.best.size(), 3u);
  EXPECT_GT(result.considered, 100);
  EXPECT_GT(result.too_large, 0);
  expect_sound(result, 64, cluster);
  Config fixed = config;
  fixed.parallel.pipeline = 4;
  fixed.parallel.zero = 2;
  for (const Candidate& candidate : search_meshes(fixed, 64, cluster, {"parallel.pipeline", "parallel.zero"}).best) {
    EXPECT_EQ(candidate.plan.config.parallel.pipeline, 4);
    EXPECT_EQ(candidate.plan.config.parallel.zero, 2);
  }
  EXPECT_THROW(search_meshes(config, 1 << 19, cluster, {}), Error);  // no mesh divides
}

/// Twelve blocks on two ranks can be cut into up to six stages per rank.
TEST(Search, TriesStagesPerRankAndOverlap) {
  Config config = paper("deepseekmoe-2b");
  config.model.layers = 12;
  const auto found = [&](const std::set<std::string>& fixed) {
    std::set<std::pair<int, Overlap>> all;
    for (const Config& variant : find_variants(config, 16, 8, fixed).possible) {
      all.emplace(variant.parallel.virtual_stages, variant.parallel.overlap);
    }
    return all;
  };
  using enum Overlap;
  config.parallel.pipeline = 2;
  EXPECT_THAT(found({"parallel.pipeline"}),
              ElementsAre(testing::Pair(1, shared), testing::Pair(2, shared), testing::Pair(3, shared),
                          testing::Pair(4, shared), testing::Pair(6, shared)));
  config.parallel.pipeline = 1;
  EXPECT_THAT(found({"parallel.pipeline"}), ElementsAre(testing::Pair(1, shared), testing::Pair(1, batches)));
  config.parallel.zero = 3;
  EXPECT_THAT(found({"parallel.pipeline", "parallel.zero"}), ElementsAre(testing::Pair(1, shared)));
}

/// A mesh has at most as many replicas as experts on other ranks, unless the number is fixed.
TEST(Search, LowersReplicasToWhatAMeshCanHave) {
  Config config = paper("deepseekmoe-2b");
  config.moe.experts = 8;
  config.moe.top_k = 2;
  config.parallel.replicas = 5;
  std::set<std::pair<int, int>> all;
  for (const Config& variant : find_variants(config, 8, 8, {}).possible) {
    all.emplace(variant.parallel.expert, variant.parallel.replicas);
  }
  EXPECT_THAT(all, ElementsAre(testing::Pair(1, 0), testing::Pair(2, 4), testing::Pair(4, 5), testing::Pair(8, 5)));
  for (const Config& variant : find_variants(config, 8, 8, {"parallel.replicas"}).possible) {
    EXPECT_GE(variant.parallel.expert, 4);
    EXPECT_EQ(variant.parallel.replicas, 5);
  }
}

/// For some of these meshes the order differs between a few micro-batches and all of them.
TEST(Search, SortsByWholeSteps) {
  Config config = paper("gshard-137b");
  config.parallel.pipeline = 2;
  const Cluster cluster = default_cluster(Precision::bf16);
  expect_sound(search_meshes(config, 256, cluster, {"parallel.pipeline"}), 256, cluster);
}

/// GPipe keeps all micro-batches of a step, although a search simulates only a few.
TEST(Search, KnowsWhatGPipeKeeps) {
  Config config = paper("deepseekmoe-2b");
  config.parallel.schedule = ScheduleKind::gpipe;
  config.parallel.pipeline = 4;
  const Cluster cluster = default_cluster(Precision::bf16);
  const SearchResult result = search_meshes(config, 8, cluster, {"parallel.schedule", "parallel.pipeline"});
  ASSERT_FALSE(result.best.empty());
  EXPECT_GT(result.too_large, 0);
  expect_sound(result, 8, cluster);
}

TEST(Search, CompletesAPartlyGivenSchedule) {
  const Cluster cluster = default_cluster(Precision::bf16);
  Config config = paper("deepseekmoe-2b");
  config.parallel.pipeline = 4;
  config.parallel.schedule = ScheduleKind::interleaved;
  for (const Candidate& candidate :
       search_meshes(config, 16, cluster, {"parallel.schedule", "parallel.pipeline"}).best) {
    EXPECT_EQ(candidate.plan.config.parallel.virtual_stages, 2);
  }
  config.parallel.schedule = ScheduleKind::one_forward_one_backward;
  config.parallel.virtual_stages = 2;
  config.batch.micro = 0;  // the search chooses it
  for (const Candidate& candidate :
       search_meshes(config, 16, cluster, {"parallel.virtual_stages", "parallel.pipeline", "batch.micro"}).best) {
    EXPECT_EQ(candidate.plan.config.parallel.schedule, ScheduleKind::interleaved);
    EXPECT_GT(candidate.plan.config.batch.micro, 0);
  }
}

TEST(Search, ListsTheProblemsIfNoMeshIsPossible) {
  const Config good = paper("deepseekmoe-2b");  // 63 experts
  EXPECT_THAT(search_problems(good, 16, 8, {}), IsEmpty());
  Config config = good;
  config.parallel.tensor = 3;
  EXPECT_THAT(search_problems(config, 16, 8, {"parallel.tensor"}),
              ElementsAre(HasSubstr("do not split into"), HasSubstr("parallel.tensor = 3 does not divide")));
  config = good;
  config.parallel.pipeline = 99;
  EXPECT_THAT(search_problems(config, 16, 8, {"parallel.pipeline"}),
              ElementsAre(HasSubstr("parallel.pipeline = 99"), HasSubstr("more than model.layers = 9")));
  config = good;
  config.parallel.placement = PlacementKind::pairs;
  EXPECT_THAT(search_problems(config, 16, 8, {}), ElementsAre(HasSubstr("63 experts do not form pairs")));
  config = good;
  config.batch.global = 7;
  const std::vector<std::string> problems = search_problems(config, 256, 8, {});
  ASSERT_THAT(problems,
              ElementsAre(HasSubstr("batch.global = 7 cannot be divided among the data-parallel ranks of any mesh")));
  const std::string value = problems[0].substr(problems[0].rfind(' '));  // the proposed value is the smallest valid one
  for (config.batch.global = 8; !search_problems(config, 256, 8, {}).empty();) ++config.batch.global;
  EXPECT_EQ(std::stoll(value), config.batch.global) << problems[0];
  config.batch.global = 7;
  config.moe.top_k = 99;  // invalid on every mesh
  EXPECT_THAT(search_problems(config, 256, 8, {}),
              ElementsAre(testing::StartsWith("moe.top_k = 99"), testing::StartsWith("no valid mesh of 256 ranks: ")));
  config = good;
  config.parallel.expert = 0;
  EXPECT_THAT(search_problems(config, 16, 8, {"parallel.expert"}), testing::Contains(HasSubstr("parallel.expert = 0")));
}

TEST(Search, ReportsTheClosestMeshWithItsTable) {
  const Cluster cluster = default_cluster(Precision::bf16);
  try {
    search_meshes(paper("deepseekmoe-145b"), 8, cluster, {});
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), testing::ContainsRegex("closest, pp[0-9]+ .* needs .* has only 76.0 GB: use more ranks"));
    EXPECT_THAT(error.what(), HasSubstr("\nrow  rank  blocks"));
  }
}

/// 720720 has more divisors than any smaller number; 999983 is prime.
TEST(Search, TakesManyRanks) {
  Config config = paper("deepseekmoe-2b");
  config.batch.global = 720720 * 4;
  EXPECT_THAT(search_problems(config, 720720, 8, {}), IsEmpty());
  EXPECT_THAT(search_problems(config, 999983, 8, {}), testing::Not(IsEmpty()));
}

}  // namespace
}  // namespace lyceum
