#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>

#include "io/routing/log.h"
#include "plan/load_profile.h"
#include "plan/load_report.h"
#include "plan/placed_load.h"
#include "plan/report.h"
#include "support/errors.h"
#include "support/paper_models.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A model with 64 equal experts per layer on 8 expert ranks.
Config even_experts() {
  Config config = paper("deepseekmoe-2b");
  config.moe.experts = 64;
  config.parallel.expert = 8;
  config.batch.micro = 1;
  return config;
}

Cluster without_latency() {
  Cluster cluster = default_cluster(Precision::bf16);
  cluster.node_latency = cluster.network_latency = 0;
  return cluster;
}

std::vector<double> sorted_shares(std::vector<double> tokens) {
  std::ranges::sort(tokens, std::greater<>());
  const double sum = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  for (double& each : tokens) each /= sum;
  return tokens;
}

TEST(LoadProfile, OfZipfHasItsExponentAndOneOrderPerLayer) {
  Config config = even_experts();
  config.moe.top_k = 1;
  const LoadProfile profile = read_load_profile("zipf:0.7", resolved(config, 8));
  ASSERT_EQ(std::ssize(profile.loads), config.model.layers - config.model.first_dense_layers);
  for (const ExpertLoad& load : profile.loads) {
    const std::vector<double> shares = sorted_shares(load.tokens);
    for (std::size_t i = 1; i < shares.size(); ++i) {
      EXPECT_NEAR(shares[i] / shares[0], std::pow(static_cast<double>(i + 1), -0.7), 1e-12);
    }
  }
  EXPECT_NE(profile.loads[0].tokens, profile.loads[1].tokens);
  EXPECT_EQ(profile.loads, read_load_profile("zipf:0.7", resolved(config, 8)).loads);
}

/// A token's choices are different experts, so none has more than 1/k of all choices.
TEST(LoadProfile, OfZipfGivesNoExpertMoreThanAllTokens) {
  Config config = even_experts();
  config.moe.top_k = 7;
  const LoadProfile profile = read_load_profile("zipf:2", resolved(config, 8));
  const std::vector<double> shares = sorted_shares(profile.loads.front().tokens);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
  EXPECT_NEAR(shares[0], 1.0 / 7, 1e-12);
  EXPECT_NEAR(shares[1], 1.0 / 7, 1e-12);
  const auto below = static_cast<std::size_t>(
      std::ranges::find_if(shares, [](double share) { return share < 1.0 / 7 - 1e-9; }) - shares.begin());
  for (std::size_t i = below; i < shares.size(); ++i) {
    EXPECT_NEAR(shares[i] / shares[below], std::pow(static_cast<double>(i + 1) / static_cast<double>(below + 1), -2.0),
                1e-9);
  }
}

TEST(LoadProfile, RefusesWhatIsNoLoad) {
  const Config config = resolved(even_experts(), 8);
  for (const char* text : {"zipf:", "zipf:x", "zipf:-1", "zipf:9", "zipf:1x", "zipf:nan"}) {
    EXPECT_THAT(error_of([&] { read_load_profile(text, config); }, ExitCode::usage), HasSubstr("a number from 0 to 8"));
  }
  Config dense = config;
  dense.moe = {};
  EXPECT_THAT(error_of([&] { read_load_profile("zipf:1", dense); }, ExitCode::usage), HasSubstr("no routed experts"));
  expect_bad_input([&] { read_load_profile("/no/such/routing.h5", config); }, "no such file");
}

/// The experts of a log for tests.
struct LoggedExperts {
  std::int64_t first_layer, layers, experts;
  std::int64_t top_k = 7, width = 0;
};

/// Writes a log whose newest of four records counts e + 1 tokens of expert e for each choice, some of them dropped.
void write_log(const std::filesystem::path& file, const LoggedExperts& logged) {
  const auto [first_layer, layers, experts, top_k, width] = logged;
  std::vector<RoutingLog::Layer> described;
  for (std::int64_t layer = first_layer; layer < first_layer + layers; ++layer) {
    described.push_back({.id = {layer},
                         .top_k = top_k,
                         .drops = true,
                         .expert_sizes = std::vector<std::int64_t>(static_cast<std::size_t>(experts), width),
                         .expert_rank = std::vector<std::int64_t>(static_cast<std::size_t>(experts), 0)});
  }
  RoutingLog log(file, described, -1);
  for (std::int64_t step = 1; step <= 4; ++step) {
    std::vector<LayerRouting> record;
    for (const RoutingLog::Layer& layer : described) {
      LayerRouting routing{.id = layer.id, .top_k = top_k, .experts = experts, .counts = {}, .mean_probability = {}};
      routing.mean_probability.resize(static_cast<std::size_t>(experts));
      for (std::int64_t i = 0; i < top_k * experts; ++i) {
        routing.counts.push_back(step < 4 ? 100 : i % experts + 1);
        routing.dropped.push_back(step < 4 || i >= experts ? 0 : 1);
      }
      record.push_back(std::move(routing));
    }
    log.append(step, record);
  }
}

TEST(LoadProfile, OfALogHasTheTokensOfItsNewestQuarter) {
  const TemporaryDirectory directory;
  const Config config = resolved(even_experts(), 8);
  const std::int64_t dense = config.model.first_dense_layers, sparse = config.model.layers - dense;
  const std::int64_t k = config.moe.top_k, width = config.moe.expert_hidden;
  write_log(directory.path() / "routing.h5", {dense, sparse, 64, k, width});
  const LoadProfile profile = read_load_profile(directory.path().string(), config);  // as its file
  ASSERT_EQ(std::ssize(profile.loads), sparse);
  for (std::size_t e = 0; e < 64; ++e) {
    // The mean of 1 to 64 tokens for each choice is 32.5. One choice of every expert was dropped.
    const double own = static_cast<double>(k) * static_cast<double>(e + 1) - 1;
    EXPECT_NEAR(profile.loads.back().tokens[e], own / (32.5 * static_cast<double>(k)), 1e-12);
  }
  EXPECT_THAT(profile.description, HasSubstr("1 record up to step 4"));
}

TEST(LoadProfile, RefusesALogOfAnotherModel) {
  const TemporaryDirectory directory;
  const Config config = resolved(even_experts(), 8);
  const std::int64_t dense = config.model.first_dense_layers, sparse = config.model.layers - dense;
  const std::int64_t k = config.moe.top_k, width = config.moe.expert_hidden;
  const auto refused = [&](const LoggedExperts& logged, const char* words) {
    const std::filesystem::path file = directory.path() / "routing.h5";
    write_log(file, logged);
    expect_bad_input([&] { read_load_profile(file.string(), config); }, words);
  };
  refused({dense, sparse, 63, k, width}, "has 63 experts, this model has 64");
  refused({dense, sparse - 1, 64, k, width}, "has no experts in layer");
  refused({dense, sparse + 1, 64, k, width}, "has experts, but not in this model");
  refused({dense, sparse, 64, k + 1, width}, "tokens choose");
  refused({dense, sparse, 64, k, width + 8}, "expert 0 of layer");
}

void expect_equal_times(const MeshPlan& plan, const MeshPlan& expected) {
  const StepTime &time = *plan.time, &other = *expected.time;
  EXPECT_NEAR(time.compute, other.compute, 1e-9 * other.total());
  EXPECT_NEAR(time.transfers, other.transfers, 1e-9 * other.total());
  EXPECT_NEAR(time.bubble, other.bubble, 1e-9 * other.total());
  EXPECT_NEAR(time.total(), other.total(), 1e-9 * other.total());
  EXPECT_EQ(plan.peak_memory(), expected.peak_memory());
}

TEST(PlannedLoad, WithoutDifferencesIsTheEvenLoad) {
  Config config = even_experts();
  const Cluster cluster = default_cluster(Precision::bf16);
  const auto compare = [&](const Config& each) {
    const Config own = resolved(each, 16);
    const LoadProfile load = read_load_profile("zipf:0", own);
    expect_equal_times(plan_mesh(own, 16, cluster, {}, &load), plan_mesh(own, 16, cluster));
  };
  compare(config);
  config.model.recompute = Recompute::full;
  config.parallel.host_ranks = 4;
  compare(config);
  config.parallel = {.pipeline = 2, .tensor = 2, .expert = 4, .expert_tensor = 2};
  config.mtp.depth = 1;
  compare(config);
}

/// Returns, for each layer, the tokens of the busiest of `ranks` ranks of consecutive experts over their mean.
std::vector<double> imbalances(const LoadProfile& load, std::size_t ranks) {
  std::vector<double> all;
  for (const ExpertLoad& layer : load.loads) {
    const std::size_t each = layer.tokens.size() / ranks;
    double most = 0, sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      double own = 0;
      for (std::size_t e = rank * each; e < (rank + 1) * each; ++e) own += layer.tokens[e];
      most = std::max(most, own);
      sum += own;
    }
    all.push_back(most * static_cast<double>(ranks) / sum);
  }
  return all;
}

/// No expert computes more than capacity_factor times the mean: what is beyond is dropped.
TEST(PlannedLoad, IsLimitedByTheCapacityOfExperts) {
  Config config = even_experts();
  config.parallel.expert = 64;  // one expert per rank
  config.moe.capacity_factor = 1.25;
  config = resolved(config, 64);
  const LoadProfile load = read_load_profile("zipf:1", config);
  const PlacedLoad placed(config, load.loads);
  const Cluster cluster = without_latency();
  const MeshPlan even = plan_mesh(config, 64, cluster), uneven = plan_mesh(config, 64, cluster, {}, &load);
  double sum = 0;
  for (const double tokens : load.loads.front().tokens) sum += std::min(tokens, 1.25);
  EXPECT_LT(sum, 60);  // of 64
  EXPECT_NEAR(placed.layers().front().fullest, 1.25, 1e-12);
  EXPECT_NEAR(placed.layers().front().imbalance, 1.25 * 64 / sum, 1e-9);
  const double layer = 6.0 * 3 * static_cast<double>(config.model.hidden * config.moe.expert_hidden) *
                       static_cast<double>(config.moe.top_k * config.batch.seq_len) / cluster.flops;
  const double expected =
      0.25 * layer * static_cast<double>(load.loads.size()) * static_cast<double>(config.batch.global / 64);
  EXPECT_NEAR(uneven.time->compute - even.time->compute, expected, 1e-6 * expected);
}

/// In every layer the ranks wait for the busiest one, which is not the same in all layers.
TEST(PlannedLoad, LengthensComputationByTheBusiestRankOfEachLayer) {
  const Config config = resolved(even_experts(), 8);
  const Cluster cluster = without_latency();
  const LoadProfile load = read_load_profile("zipf:1", config);
  const MeshPlan even = plan_mesh(config, 8, cluster), uneven = plan_mesh(config, 8, cluster, {}, &load);
  // 2 FLOPs per weight forward, 4 backward; three matrices per expert.
  const double layer = 6.0 * 3 * static_cast<double>(config.model.hidden * config.moe.expert_hidden) *
                       static_cast<double>(config.moe.top_k * config.batch.seq_len) / cluster.flops;
  double expected = 0;
  for (const double imbalance : imbalances(load, 8)) expected += (imbalance - 1) * layer;
  expected *= static_cast<double>(config.batch.global / 8);
  EXPECT_GT(expected, 0.1 * even.time->compute);
  EXPECT_NEAR(uneven.time->compute - even.time->compute, expected, 1e-6 * expected);
  EXPECT_EQ(uneven.peak_memory(), even.peak_memory());
  EXPECT_EQ(uneven.ranks[0].traffic().bytes(), even.ranks[0].traffic().bytes());
}

/// The rows that travel to a rank are the tokens of its experts if each token has one choice.
TEST(PlannedLoad, LengthensExchangesByTheRowsOfTheFullestRank) {
  Config config = even_experts();
  config.moe.top_k = 1;
  config.parallel.overlap = Overlap::none;
  config = resolved(config, 8);
  const Cluster cluster = without_latency();
  const LoadProfile load = read_load_profile("zipf:0.5", config);
  const MeshPlan even = plan_mesh(config, 8, cluster), uneven = plan_mesh(config, 8, cluster, {}, &load);
  const std::vector<double> all = imbalances(load, 8);
  const double mean = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  EXPECT_NEAR(uneven.time->transfers, mean * even.time->transfers, 1e-6 * even.time->transfers);
}

/// No more rows than tokens travel to a rank, or to a host, whose experts together are less uneven.
TEST(PlannedLoad, RowsAreAtMostTheTokens) {
  Config config = even_experts();
  config.parallel.expert = 16;
  config.parallel.host_ranks = 8;
  config = resolved(config, 16);
  const LoadProfile load = read_load_profile("zipf:1", config);
  const std::vector<double> all = imbalances(load, 16);
  const PlacedLoad placed(config, load.loads);
  ASSERT_EQ(placed.layers().size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_GT(placed.layers()[i].rows.rank, 1);
    // Seven of 64 experts, four of them on a rank: with an even load, 1 − (1 − 7/64)⁴ of the tokens travel to it.
    EXPECT_LE(placed.layers()[i].rows.rank, 1 / (1 - std::pow(1 - 7.0 / 64, 4)));
    EXPECT_GE(placed.layers()[i].rows.host, 1);
    EXPECT_LT(placed.layers()[i].rows.host, placed.layers()[i].rows.rank);
    EXPECT_NEAR(placed.layers()[i].imbalance, all[i], 1e-9);
  }
}

TEST(PlannedLoad, ComparesPlacements) {
  Config config = even_experts();
  config.parallel.replace_every = 100;
  config = resolved(config, 8);
  const Cluster cluster = default_cluster(Precision::bf16);
  const LoadProfile load = read_load_profile("zipf:1", config);
  const MeshPlan plan = plan_mesh(config, 8, cluster, {}, &load);
  const LoadComparison comparison = compare_loads(plan, cluster, load);
  std::map<std::string, LoadVariant> variants;
  for (const LoadVariant& variant : comparison.variants) variants[variant.text()] = variant;
  ASSERT_EQ(variants.size(), 7u);
  const LoadVariant &even = variants.at("even load"), &contiguous = variants.at("contiguous"),
                    &cost = variants.at("cost"), &moved = variants.at("contiguous, moved");
  EXPECT_NEAR(even.imbalance.worst, 1, 1e-12);
  EXPECT_NEAR(even.most_rows, static_cast<double>(config.batch.seq_len * config.moe.top_k), 1e-6);
  const std::vector<double> all = imbalances(load, 8);
  EXPECT_NEAR(contiguous.imbalance.worst, std::ranges::max(all), 1e-9);
  EXPECT_NEAR(contiguous.most_rows, even.most_rows * std::ranges::max(all), 1e-6 * even.most_rows);
  EXPECT_LT(moved.imbalance.mean, 1 + 0.5 * (contiguous.imbalance.mean - 1));  // the hottest expert is the limit
  EXPECT_LT(cost.imbalance.mean, 1 + 0.3 * (contiguous.imbalance.mean - 1));
  EXPECT_LT(*even.step_seconds, *moved.step_seconds);
  EXPECT_LT(*moved.step_seconds, *contiguous.step_seconds);
  // Replicas are added to the placement as planned. More of them are never worse.
  const LoadVariant &one = variants.at("contiguous, moved, 1 replica"),
                    &two = variants.at("contiguous, moved, 2 replicas");
  EXPECT_LT(one.imbalance.mean, moved.imbalance.mean);
  EXPECT_LE(two.imbalance.mean, one.imbalance.mean);
  EXPECT_LT(two.imbalance.mean, 1.06);
  EXPECT_LT(*one.step_seconds, *moved.step_seconds);
  // Three matrices: weights in bf16 for each layer, gradients in f32 for one.
  const std::int64_t layers = config.model.layers - config.model.first_dense_layers;
  EXPECT_EQ(two.replica_bytes,
            static_cast<double>(2 * (2 * layers + 4) * 3 * config.model.hidden * config.moe.expert_hidden));
  EXPECT_TRUE(moved.planned);
  EXPECT_EQ(*moved.step_seconds, plan.time->total());
  EXPECT_EQ(std::ranges::count(comparison.variants, true, &LoadVariant::planned), 1);
  const std::string text = load_report(comparison);
  EXPECT_THAT(text, HasSubstr("memory above is for an even load"));
  LoadComparison bounded = comparison;
  bounded.bounded = true;
  EXPECT_THAT(load_report(bounded), Not(HasSubstr("memory above")));
  for (const char* words :
       {"load of experts: Zipf, exponent 1", "contiguous, moved", "as planned above", "against even", "2 replicas"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  const auto json = nlohmann::json::parse(json_report(plan, cluster, nullptr, 1e9, {}, {}, &comparison)).at("load");
  EXPECT_EQ(json.at("variants").size(), 7u);
  EXPECT_EQ(json.at("variants").at(0).at("load"), "even");
  EXPECT_EQ(json.at("variants").at(1).at("busiest_over_mean"), contiguous.imbalance.mean);
  EXPECT_EQ(json.at("expert_ranks"), 8);
}

/// The plan of a configuration with replicas has their gain, and the comparison has a row without them.
TEST(PlannedLoad, HasTheConfiguredReplicas) {
  const Cluster cluster = default_cluster(Precision::bf16);
  Config config = resolved(even_experts(), 8);
  const LoadProfile load = read_load_profile("zipf:1", config);
  const MeshPlan without = plan_mesh(config, 8, cluster, {}, &load);
  config.parallel.replicas = 3;
  const MeshPlan with = plan_mesh(config, 8, cluster, {}, &load);
  EXPECT_LT(with.time->total(), without.time->total());
  EXPECT_GT(with.peak_memory(), without.peak_memory());
  std::map<std::string, LoadVariant> variants;
  for (const LoadVariant& variant : compare_loads(with, cluster, load).variants) {
    variants[variant.text()] = variant;
  }
  EXPECT_TRUE(variants.at("contiguous, 3 replicas").planned);
  EXPECT_EQ(*variants.at("contiguous, 3 replicas").step_seconds, with.time->total());
  EXPECT_NEAR(*variants.at("contiguous").step_seconds, without.time->total(), 1e-12);
  EXPECT_LT(variants.at("contiguous, 3 replicas").imbalance.mean, variants.at("contiguous").imbalance.mean);
  for (const char* other : {"contiguous, 1 replica", "contiguous, 2 replicas", "cost, 3 replicas"}) {
    EXPECT_TRUE(variants.contains(other)) << other;
    EXPECT_FALSE(variants.at(other).planned) << other;
  }
}

/// Other placements would change the groups of moe.group_limit, and experts cannot leave the rank of their group.
TEST(PlannedLoad, LeavesOutPlacementsThatARunCannotHave) {
  Config config = even_experts();
  config.balance.device_groups = 8;
  config.moe.group_limit = 4;
  const auto placements = [](const Config& each) {
    const Config own = resolved(each, each.parallel.expert);
    const LoadProfile load = read_load_profile("zipf:1", own);
    const MeshPlan plan = plan_mesh(own, each.parallel.expert, {}, {}, &load);
    std::vector<std::string> texts;
    for (const LoadVariant& variant : compare_loads(plan, {}, load).variants) {
      if (variant.replicas == 0) texts.push_back(variant.text());  // replicas change no placement
    }
    return texts;
  };
  EXPECT_EQ(placements(config), (std::vector<std::string>{"even load", "contiguous"}));
  config.parallel.expert = 16;  // two ranks for each group
  EXPECT_EQ(placements(config), (std::vector<std::string>{"even load", "contiguous", "contiguous, moved"}));
  config.balance.device_groups = config.moe.group_limit = 0;
  config.moe.expert_sizes.clear();
  config.optim.train_only = {"model/layers/*"};
  const std::vector<std::string> partial = placements(config);
  EXPECT_EQ(std::ranges::count(partial, "contiguous, moved"), 0);
  EXPECT_EQ(std::ranges::count(partial, "cost"), 1);
}

/// A search with a load compares the times that the load gives.
TEST(PlannedLoad, EntersASearch) {
  Config config = even_experts();
  config.batch.micro = 0;
  config.parallel = {};
  const Cluster cluster = default_cluster(Precision::bf16);
  const LoadProfile load = read_load_profile("zipf:1.2", resolved(config, 1));
  const std::set<std::string> fixed{"parallel.pipeline", "parallel.tensor"};
  for (const Candidate& candidate : search_meshes(config, 8, cluster, fixed, 3, &load).best) {
    const MeshPlan& plan = candidate.plan;
    EXPECT_EQ(plan_mesh(plan.config, 8, cluster, {}, &load).time->total(), plan.time->total());
    if (plan.config.parallel.expert == 1) continue;
    EXPECT_LT(plan_mesh(plan.config, 8, cluster).time->total(), plan.time->total());
  }
}

}  // namespace
}  // namespace lyceum
