#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>

#include "io/config_binding.h"
#include "io/config_check.h"
#include "model/transformer.h"
#include "plan/report.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
const fs::path configs = fs::path(LYCEUM_SOURCE_DIR) / "configs";

Config paper(const std::string& name) {
  return load_config(std::vector<std::string>{"--config", (configs / "papers" / (name + ".ini")).string()}).config;
}

Config resolved(Config config, int world) {
  EXPECT_THAT(contradictions(config, world), testing::IsEmpty());
  resolve(config, world);
  return config;
}

/// Small, with a dense block, uneven experts and sizes that padding changes.
Config small() {
  Config config;
  config.batch = {.global = 16, .micro = 2, .seq_len = 12};
  config.model.layers = 8;
  config.model.hidden = 24;
  config.model.heads = 4;
  config.model.head_dim = 6;
  config.model.ffn_hidden = 35;
  config.model.vocab = 61;
  config.model.first_dense_layers = 1;
  config.moe.experts = 5;
  config.moe.shared_experts = 1;
  config.moe.top_k = 2;
  config.moe.expert_hidden = 11;
  config.moe.expert_sizes = {5, 11, 7, 1, 16};
  return config;
}

TEST(PlannedUnits, AreThoseOfTheModel) {
  const Mesh mesh = Mesh::create(ProcessGroup::self(), {});
  for (const bool tied : {false, true}) {
    Config config = small();
    config.model.tie_embeddings = tied;
    config = resolved(config, 1);
    const Transformer model(config, CpuStream(1), mesh, DType::f32, true);
    const auto planned = planned_units(config, Place::of(config.parallel, 1, 0), {0, config.model.layers});
    ASSERT_EQ(planned.size(), model.units().size());
    for (std::size_t u = 0; u < planned.size(); ++u) {
      EXPECT_EQ(planned[u].size, model.units()[u]->size()) << model.units()[u]->name();
      EXPECT_EQ(planned[u].layer, model.units()[u]->layer());
      EXPECT_EQ(planned[u].group, model.units()[u]->group());
    }
  }
}

/// Three layers, one pass each way: the next layer in the direction of the pass is brought as well.
TEST(ZeroStates, GatherWhatIsUsedAndWhatComesNext) {
  const std::map<int, LayerBytes> layers{{0, {10, 1}}, {1, {20, 2}}, {2, {40, 4}}};
  const std::vector<LayerUse> uses{{0, false}, {1, false}, {2, false}, {2, true}, {1, true}, {0, true}};
  const ZeroStates once = play_zero(layers, uses);
  EXPECT_EQ(once.gathers, (std::map<int, double>{{0, 2}, {1, 2}, {2, 1}}));
  EXPECT_EQ(once.values, 60);
  EXPECT_EQ(once.gradients, 6);
  std::vector<LayerUse> twice = uses;
  twice.insert(twice.end(), uses.begin(), uses.end());
  // The first layer is still here when the second micro-batch begins.
  EXPECT_EQ(play_zero(layers, twice).gathers, (std::map<int, double>{{0, 3}, {1, 4}, {2, 2}}));
}

/// Blocks alike and next to no head: the bubble is that of the literature.
TEST(MeshPlan, HasTheBubbleOfItsSchedule) {
  Config config = small();
  config.moe = {};
  config.model.first_dense_layers = 0;
  config.model.hidden = 240;
  config.model.vocab = 2;
  config.model.ffn_hidden = 4000;
  config.batch = {.global = 16, .micro = 1, .seq_len = 12};
  config.parallel.pipeline = 4;
  const auto bubble = [&](const char* schedule, int chunks) {
    config.parallel.schedule = schedule;
    config.parallel.virtual_stages = chunks;
    return plan_mesh(resolved(config, 4), 4, {}).bubble();
  };
  const double p = 4, m = 16, v = 2;
  EXPECT_NEAR(bubble("1f1b", 1), (p - 1) / (m + p - 1), 2e-3);
  EXPECT_NEAR(bubble("gpipe", 1), (p - 1) / (m + p - 1), 2e-3);
  EXPECT_NEAR(bubble("interleaved", 2), (p - 1) / v / (m + (p - 1) / v), 2e-3);
  EXPECT_LT(bubble("zb-h1", 1), (p - 1) / (m + p - 1) / 2);
}

TEST(MeshPlan, ZeroSharesOutWhatItsStageSays) {
  Config config = small();
  std::vector<RankMemory> stages;
  for (int zero = 0; zero <= 3; ++zero) {
    config.parallel.zero = zero;
    const Config own = resolved(config, 4);
    stages.push_back(plan_rank(plan_input(own, 4), 0).memory);
  }
  EXPECT_LT(stages[1].optimizer, stages[0].optimizer / 3);
  EXPECT_LT(stages[2].gradients, stages[1].gradients);
  EXPECT_LT(stages[3].weights, stages[2].weights);
  EXPECT_EQ(stages[3].optimizer, stages[1].optimizer);
  EXPECT_EQ(stages[0].activations, stages[3].activations);
}

TEST(MeshPlan, TellsTheFullestRankOfEveryRow) {
  Config config = small();
  config.batch.global = 24;
  config.moe.experts = 6;
  config.parallel.pipeline = 2;
  config.parallel.expert = 3;
  config.moe.expert_sizes = {1, 2, 3, 40, 50, 20};
  std::vector<int> fullest;
  for (const char* placement : {"contiguous", "cost"}) {
    config.parallel.placement = placement;
    const Config own = resolved(config, 12);
    const MeshPlan plan = plan_mesh(own, 12, {});
    for (int row = 0; row < 2; ++row) {
      double most = 0;
      for (int rank = 6 * row; rank < 6 * (row + 1); ++rank) {
        most = std::max(most, plan_rank(plan_input(own, 12), rank).memory.total());
      }
      EXPECT_EQ(plan.ranks[static_cast<std::size_t>(row)].memory.total(), most) << placement << " row " << row;
    }
    fullest.push_back(plan.ranks[0].rank);
    EXPECT_EQ(plan_inference(own, 12, Reading::evaluate).ranks[0].rank, fullest.back());
  }
  EXPECT_EQ(fullest[0], 2);  // contiguous: experts of 50 and 20
}

TEST(MeshPlan, RecomputationTradesMemoryForTime) {
  Config config = paper("deepseekmoe-2b");
  config.batch.micro = 1;
  double memory = 1e30, seconds = 0;
  for (const char* mode : {"none", "selective", "full"}) {
    config.model.recompute = mode;
    const MeshPlan plan = plan_mesh(resolved(config, 8), 8, default_cluster("bf16"));
    EXPECT_LT(plan.ranks[0].memory.activations, memory);
    EXPECT_GT(plan.time->total(), seconds);
    memory = plan.ranks[0].memory.activations;
    seconds = plan.time->total();
  }
}

TEST(MeshPlan, WhatDoesNotFitIsToldWithTwoWaysOut) {
  Config config = paper("deepseekmoe-16b");
  config.batch.micro = 1;
  const MeshPlan plan = plan_mesh(resolved(config, 8), 8, {});
  EXPECT_NO_THROW(require_fits(plan, plan.peak_memory(), "a rank"));
  try {
    require_fits(plan, 80e9, "a rank of this test");
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(),
                testing::ContainsRegex("rank 0 needs .* GB of the 80.0 GB that a rank of this test has "
                                       "\\(weights .*, activations .*\\): raise parallel.zero .*, or raise "));
  }
}

TEST(Clusters, FilesAreReadAndTheDefaultIsOne) {
  for (const char* precision : {"f32", "bf16"}) {
    const Cluster file = read_cluster((configs / "clusters/h100-8x.ini").string(), precision);
    const Cluster built_in = default_cluster(precision);
    EXPECT_EQ(file.name, built_in.name);
    EXPECT_EQ(file.node_ranks, built_in.node_ranks);
    for (const auto value :
         {&Cluster::memory, &Cluster::flops, &Cluster::memory_bytes, &Cluster::node_bytes, &Cluster::network_bytes,
          &Cluster::node_latency, &Cluster::network_latency, &Cluster::overlap}) {
      EXPECT_DOUBLE_EQ(file.*value, built_in.*value);
    }
    EXPECT_GT(read_cluster((configs / "clusters/cpu-2-cores.ini").string(), precision).flops, 0);
  }
  EXPECT_THROW(read_cluster("absent.ini", "f32"), Error);
}

TEST(Clusters, TransfersTakeTheSlowestLinkOfTheirGroup) {
  Cluster cluster = default_cluster("bf16");
  cluster.node_latency = cluster.network_latency = 0;
  ParallelConfig parallel;
  parallel.tensor = 8;
  const Place place = Place::of(parallel, 16, 0);
  Traffic inside, outside;
  inside.add(place, Axis::tensor, Transfer::all_reduce, 8e9);
  outside.add(place, Axis::data, Transfer::all_reduce, 8e9);
  EXPECT_DOUBLE_EQ(seconds(cluster, place, inside), 2 * 7.0 / 8 * 8e9 / cluster.node_bytes);
  EXPECT_DOUBLE_EQ(seconds(cluster, place, outside), 2 * 1.0 / 2 * 8e9 / cluster.network_bytes);
}

TEST(Search, FindsMeshesThatFitFastestFirst) {
  const Config config = paper("deepseekmoe-16b");
  const Cluster cluster = default_cluster("bf16");
  const SearchResult result = search_meshes(config, 64, cluster, {});
  ASSERT_GE(result.best.size(), 3u);
  EXPECT_GT(result.considered, 100);
  EXPECT_GT(result.too_large, 0);
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const MeshPlan& plan = result.best[i].plan;
    EXPECT_LE(plan.peak_memory(), cluster.memory);
    EXPECT_THAT(contradictions(plan.config, 64), testing::IsEmpty());
    EXPECT_FALSE(result.best[i].reason.empty());
    if (i > 0) {
      EXPECT_GE(plan.time->total(), result.best[i - 1].plan.time->total());
    }
  }
  Config fixed = config;
  fixed.parallel.pipeline = 4;
  fixed.parallel.zero = 2;
  for (const Candidate& candidate : search_meshes(fixed, 64, cluster, {"parallel.pipeline", "parallel.zero"}).best) {
    EXPECT_EQ(candidate.plan.config.parallel.pipeline, 4);
    EXPECT_EQ(candidate.plan.config.parallel.zero, 2);
  }
  EXPECT_THROW(search_meshes(paper("deepseekmoe-145b"), 8, cluster, {}), Error);  // nothing fits
  EXPECT_THROW(search_meshes(config, 1 << 20, cluster, {}), Error);               // nothing divides
}

/// Every model of the papers is planned without a cluster, this build's own or not.
TEST(Report, OfEveryPaperModel) {
  for (const auto& entry : fs::directory_iterator(configs / "papers")) {
    const Config config = resolved(paper(entry.path().stem().string()), 1);
    const MeshPlan plan = plan_mesh(config, 1, {});
    const auto json = nlohmann::json::parse(json_report(plan, {}, nullptr));
    EXPECT_GT(json.at("parameters").at("total"), json.at("parameters").at("activated").get<std::int64_t>() - 1);
    EXPECT_GT(json.at("flops_per_sequence"), 1e12);
    double sum = 0;
    for (const char* kind : {"weights", "gradients", "optimizer", "activations", "buffers"}) {
      sum += json.at("memory_bytes_per_rank").at(kind).get<double>();
    }
    EXPECT_NEAR(json.at("memory_bytes_per_rank").at("total").get<double>(), sum, 8);
    EXPECT_EQ(json.at("communication_bytes_per_step").at("data"), 0);
    EXPECT_EQ(json.at("pipeline").at("bubble"), 0);
    EXPECT_THAT(model_report(config) + mesh_report(plan, {}), HasSubstr("optimizer"));
  }
}

}  // namespace
}  // namespace lyceum
