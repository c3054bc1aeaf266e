#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>

#include "model/counts.h"
#include "model/model_tensors.h"
#include "model/stages.h"
#include "plan/checkpoint_list.h"
#include "plan/memory.h"
#include "plan/mesh_plan.h"
#include "plan/model_part.h"
#include "plan/report.h"
#include "support/latent_model.h"
#include "support/paper_models.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A small model with a dense block, uneven experts, and sizes that need padding.
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

void expect_same(const ModelPart& part, const ModelPart& expected) {
  EXPECT_EQ(part.activations.forward, expected.activations.forward);
  EXPECT_EQ(part.activations.saved, expected.activations.saved);
  EXPECT_EQ(part.activations.saved_for_weights, expected.activations.saved_for_weights);
  EXPECT_EQ(part.activations.backward, expected.activations.backward);
  EXPECT_EQ(part.activations.backward_input, expected.activations.backward_input);
  EXPECT_EQ(part.activations.backward_weight, expected.activations.backward_weight);
  EXPECT_EQ(part.buffers, expected.buffers);
  for (const Axis axis : {Axis::data, Axis::tensor, Axis::expert, Axis::expert_tensor}) {
    EXPECT_EQ(part.traffic.forward.bytes(axis), expected.traffic.forward.bytes(axis));
    EXPECT_EQ(part.traffic.backward.bytes(axis), expected.traffic.backward.bytes(axis));
  }
  ASSERT_EQ(part.units.size(), expected.units.size());
  for (std::size_t u = 0; u < part.units.size(); ++u) EXPECT_EQ(part.units[u].size, expected.units[u].size);
}

/// The numbers of a part that was rehearsed in a small stage hold for every rank of a large one.
TEST(ModelParts, AreThoseOfAnyStageWithGroupsOfTheirSizes) {
  Config config = small();
  config.batch.global = 48;
  config.moe.experts = 6;
  config.moe.expert_sizes = {5, 11, 7, 4, 16, 9};
  config.balance = {.expert = 0.1, .scope = BalanceScope::batch};
  for (const ParallelConfig& parallel :
       {ParallelConfig{.pipeline = 2, .tensor = 2, .expert = 3, .sequence = true}, ParallelConfig{.tensor = 4},
        ParallelConfig{.expert = 6, .expert_tensor = 2}, ParallelConfig{}}) {
    config.parallel = parallel;
    const Config own = resolved(config, 24);
    ModelParts parts;
    for (int rank = 0; rank < 24; ++rank) {
      SCOPED_TRACE(mesh_shape(parallel).text(24) + ", rank " + std::to_string(rank));
      const MeshRank mesh_rank = MeshRank::of(own.parallel, 24, rank);
      expect_same(parts.input(own, mesh_rank), rehearse_part(own, mesh_rank, {true, {0, 0}, false}));
      for (const std::int64_t layer : {std::int64_t{0}, std::int64_t{3}}) {
        expect_same(parts.block(own, mesh_rank, layer), rehearse_part(own, mesh_rank, {false, {layer, 1}, false}));
      }
      expect_same(parts.output(own, mesh_rank), rehearse_part(own, mesh_rank, {false, {own.model.layers, 0}, true}));
    }
  }
}

/// Three layers, one forward and one backward pass. The next layer in the direction of the pass is gathered, too.
TEST(ZeroStates, GatherTheLayerInUseAndTheNextOne) {
  const std::map<int, LayerBytes> layers{{0, {10, 1}}, {1, {20, 2}}, {2, {40, 4}}};
  const std::vector<LayerUse> uses{{0, false}, {1, false}, {2, false}, {2, true}, {1, true}, {0, true}};
  const ZeroStates once = simulate_zero(layers, uses);
  EXPECT_EQ(once.gathers, (std::map<int, double>{{0, 2}, {1, 2}, {2, 1}}));
  EXPECT_EQ(once.values, 60);
  EXPECT_EQ(once.gradients, 6);
  std::vector<LayerUse> twice = uses;
  twice.insert(twice.end(), uses.begin(), uses.end());
  // The first layer is still gathered when the second micro-batch begins.
  EXPECT_EQ(simulate_zero(layers, twice).gathers, (std::map<int, double>{{0, 3}, {1, 4}, {2, 2}}));
}

/// The bubble is that of the literature if blocks are equal and the head is negligible.
TEST(MeshPlan, HasTheBubbleOfItsSchedule) {
  Config config = small();
  config.moe = {};
  config.model.first_dense_layers = 0;
  config.model.hidden = 240;
  config.model.vocab = 2;
  config.model.ffn_hidden = 4000;
  config.batch = {.global = 16, .micro = 1, .seq_len = 12};
  config.parallel.pipeline = 4;
  const auto bubble = [&](ScheduleKind schedule, int chunks) {
    config.parallel.schedule = schedule;
    config.parallel.virtual_stages = chunks;
    return plan_mesh(resolved(config, 4), 4, {}).bubble();
  };
  const double p = 4, m = 16, v = 2;
  EXPECT_NEAR(bubble(ScheduleKind::one_forward_one_backward, 1), (p - 1) / (m + p - 1), 2e-3);
  EXPECT_NEAR(bubble(ScheduleKind::gpipe, 1), (p - 1) / (m + p - 1), 2e-3);
  EXPECT_NEAR(bubble(ScheduleKind::interleaved, 2), (p - 1) / v / (m + (p - 1) / v), 2e-3);
  EXPECT_LT(bubble(ScheduleKind::zero_bubble, 1), (p - 1) / (m + p - 1) / 2);
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

TEST(MeshPlan, ReportsTheFullestRankOfEveryRow) {
  Config config = small();
  config.batch.global = 24;
  config.moe.experts = 6;
  config.parallel.pipeline = 2;
  config.parallel.expert = 3;
  config.moe.expert_sizes = {1, 2, 3, 40, 50, 20};
  std::vector<int> fullest;
  for (const PlacementKind placement : {PlacementKind::contiguous, PlacementKind::cost}) {
    config.parallel.placement = placement;
    const Config own = resolved(config, 12);
    const MeshPlan plan = plan_mesh(own, 12, {});
    for (int row = 0; row < 2; ++row) {
      double most = 0;
      for (int rank = 6 * row; rank < 6 * (row + 1); ++rank) {
        most = std::max(most, plan_rank(plan_input(own, 12), rank).memory.total());
      }
      EXPECT_EQ(plan.ranks[static_cast<std::size_t>(row)].memory.total(), most) << name_of(placement) << " row " << row;
    }
    fullest.push_back(plan.ranks[0].rank);
    EXPECT_EQ(plan_inference(own, 12, Reading::evaluate).ranks[0].rank, fullest.back());
  }
  EXPECT_EQ(fullest[0], 2);  // contiguous placement: this rank has the experts of widths 50 and 20
}

/// Repetitions of the steady state are left out of the plan; memory does not change.
TEST(MeshPlan, FewMicroBatchesHaveTheMemoryOfAll) {
  Config config = small();
  config.model.first_dense_layers = 0;
  config.batch = {.global = 96, .micro = 1, .seq_len = 12};
  config.parallel.pipeline = 4;
  for (const ScheduleKind schedule : {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward,
                                      ScheduleKind::zero_bubble, ScheduleKind::interleaved}) {
    config.parallel.schedule = schedule;
    config.parallel.virtual_stages = schedule == ScheduleKind::interleaved ? 2 : 1;
    const Config own = resolved(config, 8);
    const MeshPlan all = plan_mesh(own, 8, {}), few = plan_mesh(own, 8, {}, {.microbatches = 8});
    for (std::size_t row = 0; row < 4; ++row) {
      EXPECT_EQ(few.ranks[row].memory.activations, all.ranks[row].memory.activations)
          << name_of(schedule) << " row " << row;
    }
  }
}

/// All ranks wait for a rank whose experts are wider than the mean.
TEST(MeshPlan, TakesTheTimeOfTheSlowestRank) {
  Config config = paper("modse-300mx8");
  config.parallel.expert = 4;
  config.moe.expert_sizes = {6912, 6144, 4608, 3840, 3840, 3072, 1536, 768};
  using enum PlacementKind;
  std::map<PlacementKind, double> compute;
  for (const PlacementKind placement : {contiguous, pairs, cost}) {
    config.parallel.placement = placement;
    compute[placement] = plan_mesh(resolved(config, 4), 4, default_cluster(Precision::bf16)).time->compute;
  }
  EXPECT_DOUBLE_EQ(compute[pairs], compute[cost]);
  const Config own = resolved(config, 4);
  const double steps = 1024.0 / 4, whole = count_model(own).causal_flops_per_sequence,
               routed = 6.0 * static_cast<double>(count_model(own).blocks.routed.activated) * 4096;
  const double rate = default_cluster(Precision::bf16).flops;
  EXPECT_NEAR(compute[pairs], steps * whole / rate, 1e-3 * compute[pairs]);
  // The rank's experts have widths 6912 and 6144; the mean of a rank is 2 · 3840.
  EXPECT_NEAR(compute[contiguous], steps * (whole - routed + routed * 13056 / 7680) / rate, 1e-3 * compute[pairs]);
}

TEST(MeshPlan, CountsExpertsThatDoNotDivide) {
  Config config = paper("deepseekmoe-2b");
  config.parallel.expert = 8;
  const Config own = resolved(config, 8);
  const double steps = 2048.0 / 8, whole = count_model(own).causal_flops_per_sequence,
               routed = 6.0 * static_cast<double>(count_model(own).blocks.routed.activated) * 2048;
  const Cluster cluster = default_cluster(Precision::bf16);
  EXPECT_NEAR(plan_mesh(own, 8, cluster).time->compute,
              steps * (whole - routed + routed * 8 / (63.0 / 8)) / cluster.flops, 1e-3);
  config.parallel.tensor = 2;
  config.parallel.expert = 1;
  config.parallel.expert_tensor = 2;  // each rank computes half of every expert, for the tokens of both ranks
  EXPECT_NEAR(plan_mesh(resolved(config, 8), 8, cluster).time->compute, steps * whole / cluster.flops, 3e-3);
}

/// A part of the model is rehearsed for each number of attention experts of a layer.
TEST(MeshPlan, CountsTheAttentionExpertsOfEachLayer) {
  Config config = small();
  config.moe = {};
  config.model.layers = 2;
  config.model.first_dense_layers = 0;
  config.model.attention = AttentionKind::experts;
  const auto states = [&](std::int64_t first, std::int64_t second) {
    Config own = config;
    own.attention_experts = {.count = 40, .top_k = 2, .count_of_layers = {first, second}, .gates = {}};
    const RankMemory memory = plan_rank(plan_input(resolved(own, 1), 1), 0).memory;
    return memory.weights + memory.optimizer;
  };
  const double few = states(4, 4), many = states(40, 40);
  EXPECT_GT(many, 2 * few);
  EXPECT_NEAR(states(40, 4), (few + many) / 2, 1e-3 * many);
  EXPECT_NEAR(states(4, 40), (few + many) / 2, 1e-3 * many);
}

/// If transfers are short, `shared` hides two of the four exchanges of a layer, and `batches` all but those of the
/// first forward and the last backward pass. If they are long, they are shortened by the time of what runs beside them.
TEST(MeshPlan, HidesTransfersBehindComputation) {
  Config config = paper("deepseekmoe-2b");
  config.moe.experts = 64;
  config.parallel.expert = 8;
  config.batch.micro = 1;
  Cluster cluster = default_cluster(Precision::bf16);
  cluster.node_latency = 0;
  const auto transfers = [&](Overlap overlap) {
    config.parallel.overlap = overlap;
    return plan_mesh(resolved(config, 8), 8, cluster).time->transfers;
  };
  const double passes = 2048.0 / 8;
  const BlockCounts blocks = count_model(resolved(config, 8)).blocks;
  const double tokens = 2048, shared = 2 * static_cast<double>(blocks.shared.activated) * tokens / cluster.flops,
               routed = 2 * static_cast<double>(blocks.routed.activated) * tokens / cluster.flops,
               all_flops = 2 * static_cast<double>(blocks.sum().activated) * tokens + blocks.causal_attention_flops,
               around = all_flops / cluster.flops - shared - routed;
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    // Full recomputation computes the gradients of weights after those of all inputs of a block.
    const double twice = recompute == Recompute::full ? 1 : 2;
    config.model.recompute = recompute;
    for (const double rate : {1e12, 1e11, 1e8}) {
      cluster.node_bytes = rate;
      config.model.recompute = Recompute::none;
      const double each = transfers(Overlap::none) / passes / 4;  // without what recomputation sends again
      config.model.recompute = recompute;
      const double all = transfers(Overlap::none);
      const double by_shared = std::min(each, shared) + std::min(each, twice * shared);
      const double by_turns = std::min(each, around) + std::min(each, shared + twice * routed) +
                              std::min(each, twice * shared + routed) +
                              std::min(each, 2 * around + (2 - twice) * (shared + routed));
      // Gates and indices, which only forward sends, are 0.3 % of the bytes.
      EXPECT_NEAR(transfers(Overlap::shared), all - passes * by_shared, 5e-3 * passes * by_shared) << rate;
      EXPECT_NEAR(transfers(Overlap::batches), all - (passes - 1) * by_turns - by_shared, 5e-3 * passes * by_turns)
          << rate;
    }
  }
  cluster.overlap = 0;
  EXPECT_EQ(transfers(Overlap::batches), transfers(Overlap::none));
}

/// Exchanges by hosts are shortened in the hop between hosts only.
TEST(MeshPlan, HidesTheHopBetweenHosts) {
  Config config = paper("deepseekmoe-2b");
  config.moe.experts = 64;
  config.parallel.expert = 16;
  config.parallel.host_ranks = 8;
  Cluster cluster = default_cluster(Precision::bf16);
  cluster.node_latency = cluster.network_latency = 0;
  cluster.network_bytes = 1e13;
  const auto transfers = [&](Overlap overlap) {
    config.parallel.overlap = overlap;
    return plan_mesh(resolved(config, 16), 16, cluster).time->transfers;
  };
  const double all = transfers(Overlap::none);
  EXPECT_GT(transfers(Overlap::batches), 0.9 * all) << "the hops within hosts take most of the time";
  cluster.node_bytes = 1e15;
  EXPECT_LT(transfers(Overlap::batches), 0.1 * transfers(Overlap::none));
}

/// The layers of a model with alternating windows differ in time.
TEST(MeshPlan, TimesLayersByTheirWindows) {
  Config config = paper("deepseekmoe-2b");
  const auto compute = [&] {
    return plan_mesh(resolved(config, 1), 1, default_cluster(Precision::bf16)).time->compute;
  };
  const double without = compute();
  config.model.window = 16;
  const double all = compute();
  config.model.window_layers = {1, 0, 0};
  EXPECT_NEAR(compute(), (all + 2 * without) / 3, 1e-9 * without);
}

/// Four of eight layers have a window of 5 tokens, so their keys and values have 5 positions instead of 12, and their
/// queries see fewer keys.
TEST(MeshPlan, CachesAndFlopsFollowTheWindow) {
  Config config = resolved(small(), 1);
  const MeshRank one = MeshRank::of(config.parallel, 1, 0);
  const Range blocks{0, config.model.layers};
  const double position = 2 * 4 * 6 * sizeof(float);  // of one layer: keys and values of four heads
  const double memory = plan_inference(config, 1, Reading::generate).ranks[0].memory.total();
  const double flops = count_model(config).causal_flops_per_sequence;
  EXPECT_EQ(cache_bytes(config, one, blocks), 8 * 12 * position);
  config.model.window = 5;
  config.model.window_layers = {1, 0};
  EXPECT_EQ(cache_bytes(config, one, blocks), (4 * 12 + 4 * 5) * position);
  EXPECT_EQ(memory - plan_inference(config, 1, Reading::generate).ranks[0].memory.total(), 4 * (12 - 5) * position);
  const double pairs = 12 * 12 / 2.0 - (12 * 5 - 5 * 5 / 2.0);  // fewer pairs of a query and a key per layer
  EXPECT_DOUBLE_EQ(flops - count_model(config).causal_flops_per_sequence, 4 * 3 * pairs * 2 * (24 + 24));
}

/// The cache of latent attention has 7 + 2 numbers for each position of a layer, and each tensor rank has all of them.
/// Scores have heads of 4 + 2 numbers, values of 5; selective recomputation repeats two products.
TEST(MeshPlan, CachesAndFlopsFollowTheLatents) {
  Config config = small();
  config.parallel.tensor = 2;
  make_latent(config.model, 5);
  config.model.recompute = Recompute::selective;
  config = resolved(config, 2);
  const MeshRank first = MeshRank::of(config.parallel, 2, 0);
  EXPECT_EQ(cache_bytes(config, first, {0, config.model.layers}), 8.0 * 12 * (7 + 2) * sizeof(float));
  EXPECT_EQ(cache_bytes(config), 8.0 * 12 * (7 + 2) * sizeof(float));
  const BlockCounts counts = count_block(config, 0);
  EXPECT_DOUBLE_EQ(counts.attention_flops, 12 * 12 * 2 * 4 * (4 + 2 + 5));
  EXPECT_DOUBLE_EQ(recomputed_flops(config, 0),
                   counts.causal_attention_flops + 2 * 12 * 4 * ((4 + 5) * 7 + (4 + 2) * 5));
}

TEST(MeshPlan, RecomputationTradesMemoryForTime) {
  Config config = paper("deepseekmoe-2b");
  config.batch.micro = 1;
  double memory = 1e30, seconds = 0;
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
    config.model.recompute = mode;
    const MeshPlan plan = plan_mesh(resolved(config, 8), 8, default_cluster(Precision::bf16));
    EXPECT_LT(plan.ranks[0].memory.activations, memory);
    EXPECT_GT(plan.time->total(), seconds);
    memory = plan.ranks[0].memory.activations;
    seconds = plan.time->total();
  }
}

/// Every model of the papers is planned on one rank with ZeRO 0, without a cluster. Each of the parameters that
/// count_model() counts takes two bytes of weights, four of gradients, and twelve of master weights and moments; so
/// does the padding of expert rows to a multiple of 8.
TEST(Report, OfEveryPaperModel) {
  for (const auto& entry : fs::directory_iterator(configs() / "papers")) {
    const std::string name = entry.path().stem().string();
    const Config config = resolved(paper(name), 1);
    const ModelCounts counts = count_model(config);
    const auto parameters = static_cast<double>(counts.parameters);
    const MeshPlan plan = plan_mesh(config, 1, {});
    const auto json = nlohmann::json::parse(json_report(plan, {}, nullptr, 1e9));
    EXPECT_EQ(json.at("parameters").at("total"), counts.parameters) << name;
    EXPECT_EQ(json.at("parameters").at("activated"), counts.activated) << name;
    EXPECT_EQ(json.at("flops_per_sequence"), counts.flops_per_sequence) << name;
    EXPECT_EQ(json.at("cache_bytes_per_sequence"), cache_bytes(config)) << name;
    EXPECT_EQ(json.at("checkpoint_list").at("tensors"), checkpoint_list(config).tensors) << name;
    EXPECT_GE(checkpoint_list(config).tensors, 2 * std::ssize(model_tensors(config))) << name;
    EXPECT_THAT(model_report(config), AllOf(HasSubstr("\nall "), HasSubstr("\nkey-value cache of such a sequence")))
        << name;
    const auto& memory = json.at("memory_bytes_per_rank");
    EXPECT_NEAR(memory.at("weights").get<double>(), 2 * parameters, 2 * 4e-3 * parameters) << name;
    EXPECT_NEAR(memory.at("gradients").get<double>(), 4 * parameters, 4 * 4e-3 * parameters) << name;
    const double digests = 4.0 / 1024 * parameters;  // digests of blocks of elements, see run.audit_every
    EXPECT_NEAR(memory.at("optimizer").get<double>(), 12 * parameters + digests, 12 * 4e-3 * parameters) << name;
    const double row = static_cast<double>(config.batch.seq_len * config.model.hidden) * 2;
    EXPECT_GT(memory.at("activations").get<double>(), row * static_cast<double>(config.model.layers)) << name;
    for (const auto& [group, bytes] : json.at("communication_bytes_per_step").items()) EXPECT_EQ(bytes, 0) << group;
    EXPECT_EQ(json.at("pipeline").at("bubble"), 0) << name;
    EXPECT_EQ(json.at("pipeline").at("microbatches"), config.batch.global) << name;
    EXPECT_THAT(mesh_report(plan, {}, 1e9), HasSubstr("mesh of 1 rank: pp1 dp1 tp1")) << name;
  }
}

}  // namespace
}  // namespace lyceum
