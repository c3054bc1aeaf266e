#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <sstream>

#include "core/allocator.h"
#include "model/stages.h"
#include "parallel/data/copies.h"
#include "plan/muon_plan.h"
#include "support/latent_model.h"
#include "support/planned_peaks.h"
#include "support/tested_world.h"
#include "train/eval/evaluator.h"

namespace lyceum {
namespace {

/// Bytes that this rank has sent so far [axes, operations], counted as a plan counts them.
using Counted = std::array<std::array<double, transfer_names.size()>, axis_names.size()>;

void add(Counted& counted, Axis axis, const ProcessGroup::Traffic& traffic) {
  auto& row = counted[static_cast<std::size_t>(axis)];
  const std::array bytes{traffic.all_reduce, traffic.reduce_scatter, traffic.all_gather, traffic.all_to_all,
                         traffic.send};
  for (std::size_t t = 0; t < bytes.size(); ++t) row[t] += static_cast<double>(bytes[t]);
}

Counted counted_by(TinyTraining& training) {
  Counted counted{};
  const Mesh& mesh = training.setup().mesh;
  const std::array<const ProcessGroup*, 8> groups{&mesh.world,         &mesh.data,        &mesh.tensor,
                                                  &mesh.pipeline,      &mesh.data_tensor, &mesh.expert,
                                                  &mesh.expert_tensor, &mesh.expert_data};
  for (std::size_t a = 0; a < groups.size(); ++a) add(counted, static_cast<Axis>(a), groups[a]->traffic());
  if (const auto& hosts = mesh.expert_hosts) {
    add(counted, Axis::expert_across, hosts->across.traffic());
    add(counted, Axis::expert_within, hosts->within.traffic());
  }
  add(counted, Axis::data, training.zero().traffic(ParameterUnit::Group::dense));
  add(counted, Axis::data_tensor, training.zero().traffic(ParameterUnit::Group::replicated));
  add(counted, Axis::expert_data, training.zero().traffic(ParameterUnit::Group::expert));
  add(counted, Axis::expert_copies, training.zero().traffic(ParameterUnit::Group::expert_replicated));
  add(counted, Axis::pipeline_ends, training.step().shared_table_traffic());
  const MeshRank mesh_rank{.shape = mesh.shape, .world = mesh.world.size(), .index = mesh.index};
  for (const ParameterUnit::Group group : parameter_groups) {
    add(counted, muon_axis(mesh_rank, group), training.optimizer().traffic(group));
  }
  return counted;
}

/// A model in which every token chooses every expert. So routing is balanced, as plans assume.
Config balanced_config() {
  Config config = tiny_config();
  config.moe.top_k = config.moe.experts = 6;
  config.moe.expert_sizes = {5, 11, 7, 4, 16, 9};
  config.model.layers = 4;
  config.batch.global = 16;
  return config;
}

std::string name_of(const Config& config, int world) {
  std::ostringstream text;
  text << mesh_shape(config.parallel).text(world) << " zero " << config.parallel.zero << ' '
       << name_of(config.parallel.schedule) << ' ' << name_of(config.model.recompute)
       << (config.parallel.sequence ? " sequence" : "")
       << (config.parallel.overlap == Overlap::batches ? " two batches" : "");
  if (config.model.loss_chunk > 0) text << " chunks of " << config.model.loss_chunk;
  return text.str();
}

/// Returns configurations for `world` ranks: each axis alone, several axes together, and every ZeRO stage.
std::vector<Config> meshes(const Config& base, int world) {
  using enum Recompute;
  std::vector<Config> all;
  const auto add = [&](ParallelConfig parallel, Recompute recompute = none, std::int64_t micro = 0) {
    Config config = base;
    config.parallel = parallel;
    config.model.recompute = recompute;
    config.batch.micro = micro;
    if (contradictions(config, world).empty()) all.push_back(config);
  };
  for (int zero = 0; zero <= 3; ++zero) {
    add({.zero = zero});
    add({.expert = 2, .zero = zero}, full, 1);
    add({.tensor = 2, .zero = zero, .sequence = true}, none, 2);
    add({.pipeline = 2, .zero = zero}, none, 1);
    add({.pipeline = 2, .tensor = 2, .expert = 2, .zero = zero}, full, 1);
  }
  add({}, selective, 1);
  add({.tensor = 2, .expert = 2, .zero = 1, .sequence = true, .placement = PlacementKind::cost}, selective, 1);
  add({.pipeline = 2, .expert = 2, .placement = PlacementKind::cost}, selective, 1);
  add({.expert_tensor = 2}, selective, 1);
  add({.expert = 2, .expert_tensor = 2}, selective, 1);
  add({.tensor = 2, .expert = 2, .expert_tensor = 2, .sequence = true}, selective);
  add({.pipeline = 2, .schedule = ScheduleKind::zero_bubble}, selective, 1);
  add({.pipeline = 2, .schedule = ScheduleKind::zero_bubble}, full, 1);
  add({.pipeline = 2, .zero = 3}, selective, 1);
  add({.tensor = 2}, selective, 1);
  add({.tensor = 2});
  add({.tensor = 2, .expert = 2}, full, 1);
  add({.expert_tensor = 2}, none, 1);
  add({.tensor = 2, .expert = 2, .expert_tensor = 2, .sequence = true});
  add({.pipeline = 2, .schedule = ScheduleKind::interleaved, .virtual_stages = 2}, none, 1);
  add({.pipeline = 2, .schedule = ScheduleKind::gpipe}, none, 1);
  add({.pipeline = 2, .schedule = ScheduleKind::zero_bubble}, none, 1);
  add({.expert = 4, .expert_tensor = 2});
  add({.expert = 4, .host_ranks = 2}, selective, 1);
  add({.tensor = 2, .expert = 4, .zero = 1, .sequence = true, .host_ranks = 2}, full, 1);
  add({.expert = 4, .expert_tensor = 2, .dispatch = DispatchKind::hierarchical, .host_ranks = 4}, none, 1);
  const auto add_chunk = [&](ParallelConfig parallel, Recompute recompute = none) {
    const std::size_t before = all.size();
    add(parallel, recompute, 1);
    if (all.size() > before) all.back().model.loss_chunk = base.batch.seq_len / 4 + 1;
  };
  for (const int zero : {0, 2, 3}) add_chunk({.zero = zero});
  add_chunk({.tensor = 2, .sequence = true}, full);
  add_chunk({.pipeline = 2, .tensor = 2}, selective);
  add_chunk({.pipeline = 2, .zero = 2, .schedule = ScheduleKind::zero_bubble}, full);
  add_chunk({.pipeline = 2, .schedule = ScheduleKind::zero_bubble});
  for (const int zero : {0, 2, 3}) {
    for (const int pipeline : {1, 2}) {
      add({.pipeline = pipeline, .zero = zero}, none, 1);
      if (!all.empty()) all.back().model.tie_embeddings = true;
    }
  }
  for (const ParallelConfig& parallel : {ParallelConfig{.expert = 2}, ParallelConfig{.expert = 2, .zero = 2},
                                         ParallelConfig{.zero = 3}, ParallelConfig{.pipeline = 2, .zero = 3}}) {
    const std::size_t before = all.size();
    add(parallel, none, 1);
    if (all.size() == before) continue;
    all.back().optim.train_only = {"model/layers/*/mlp/experts/[12]/*", "model/layers/*/mlp/gate/weight[2:4]"};
    all.back().optim.router_penalty = 0.1;
  }
  add({}, Recompute::selective, 1);
  if (!all.empty()) all.back().model.attention_weights = AttentionWeights::stick_breaking;
  for (const Recompute recompute : {none, Recompute::selective}) {
    const std::size_t before = all.size();
    add({.tensor = std::min(world, 2), .zero = world > 2 ? 2 : 0}, recompute, 1);
    if (all.size() == before) continue;
    all.back().model.window = 4;
    all.back().model.sinks = true;
  }
  for (const Recompute recompute : {none, Recompute::selective}) {
    for (const std::int64_t query_rank : {0, 5}) {
      const std::size_t before = all.size();
      add({.tensor = std::min(world, 2), .sequence = query_rank > 0}, recompute, 1);
      if (all.size() > before) make_latent(all.back().model, query_rank);
    }
  }
  for (const std::int64_t query_rank : {-1, 5}) {
    const std::size_t before = all.size();
    add({.tensor = std::min(world, 2), .zero = 2}, selective, 1);
    if (all.size() == before) continue;
    all.back().optim.qk_clip = 1;
    if (query_rank > 0) make_latent(all.back().model, query_rank);
  }
  const auto add_modules = [&](ParallelConfig parallel, Recompute recompute, bool tied = false) {
    const std::size_t before = all.size();
    add(parallel, recompute, 1);
    if (all.size() == before) return;
    // Activations and gathered layers, or gradients, reach their peaks in different modules; with two modules, the sum
    // would be 13 to 15 % too large.
    all.back().mtp = {.depth = parallel.zero >= 2 && (recompute == full || tied) ? 1 : 2};
    all.back().model.tie_embeddings = tied;
    all.back().model.loss_chunk = tied ? 5 : 0;
  };
  for (const int pipeline : {1, 2}) {
    add_modules({.pipeline = pipeline}, none);
    add_modules({.pipeline = pipeline, .zero = 2}, none, true);
    add_modules({.pipeline = pipeline, .zero = 3}, none);
    add_modules({.pipeline = pipeline, .zero = 3}, full, true);
  }
  add_modules({.tensor = 2, .expert = 2, .sequence = true}, selective);
  add_modules({.pipeline = 2, .expert = 2, .zero = 2, .schedule = ScheduleKind::zero_bubble}, full);
  return all;
}

/// Adds attention experts, all of which every token chooses.
void add_attention_experts(Config& config) {
  config.model.attention = AttentionKind::experts;
  config.attention_experts = {.count = 2, .top_k = 2, .gates = {}};
  config.model.sinks = false;  // attention experts have none
  config.optim.qk_clip = 0;
  config.model.latent = {};  // and these neither
  if (config.model.head_dim == 0) config.model.head_dim = 6;
}

/// Limits the capacity of experts, and the choices of the first of two steps to one expert per token. In the second
/// step tokens choose all experts, and each expert has room for all tokens.
void limit(MoeConfig& moe, RunConfig& run) {
  run.steps = 2;
  moe.top_k_start = 1;
  moe.capacity_factor = 1;
}

/// Expects that the bytes sent between two counts are those of the plan, for each group and operation.
void expect_traffic(const Traffic& planned, const Counted& before, const Counted& after, const std::string& what) {
  for (std::size_t a = 0; a < axis_names.size(); ++a) {
    for (std::size_t t = 0; t < transfer_names.size(); ++t) {
      EXPECT_EQ(planned.of(static_cast<Axis>(a), static_cast<Transfer>(t)).bytes, after[a][t] - before[a][t])
          << what << ": " << transfer_names[t] << " on " << axis_names[a];
    }
  }
}

/// Trains two steps of a tiny model and expects that the plan has the bytes of the second one. The first also sends
/// what is sent once per run. `config`: not resolved.
void expect_traffic_of_a_step(Config config) {
  const int world = test_world().size(), rank = test_world().rank();
  TinyTraining training(config, test_world());
  resolve(config, world);
  training.run_steps_only(0, 1);
  const Counted before = counted_by(training);
  training.run_steps_only(1, 1);
  const Counted after = counted_by(training);
  const Traffic planned = plan_rank(plan_input(config, world), rank).traffic();
  expect_traffic(planned, before, after, name_of(config, world) + ", rank " + std::to_string(rank));
}

TEST(Plan, CountsTheBytesThatAStepHandsOver) {
  const int world = test_world().size();
  bool batch = false;  // balance.scope = batch or global, on every second mesh
  for (Config config : meshes(balanced_config(), world)) {
    batch = !batch;
    if (batch) {
      config.balance.scope = config.parallel.zero == 0 ? BalanceScope::global : BalanceScope::batch;
      add_attention_experts(config);
    }
    config.balance.mutual_information = config.parallel.zero == 1 ? 0.1 : 0;
    if (config.parallel.zero == 2) limit(config.moe, config.run);
    expect_traffic_of_a_step(config);
  }
}

/// Covers the sums over tensor ranks of norms over all heads of a token, and those of the shared experts' gate.
TEST(Plan, CountsTheBytesOfNormedProjections) {
  const int world = test_world().size();
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tensor = 2, .zero = 3}, ParallelConfig{.pipeline = 2, .tensor = 2, .sequence = true}}) {
    for (const QkNormKind kind : {QkNormKind::head, QkNormKind::all}) {
      Config config = balanced_config();
      config.parallel = parallel;
      config.model.qkv_bias = true;
      config.model.qk_norm = kind;
      config.model.recompute = Recompute::selective;
      config.moe.shared_gate = true;
      if (!contradictions(config, world).empty()) continue;
      expect_traffic_of_a_step(config);
    }
  }
}

/// Covers factors of adapters that tensor and expert-tensor ranks hold in full, and gathers of adapted weights.
TEST(Plan, CountsTheBytesOfAdapters) {
  const int world = test_world().size();
  std::vector<ParallelConfig> meshes{{.pipeline = 2, .zero = 3}, {.pipeline = 2, .tensor = 2, .sequence = true}};
  for (int zero = 0; zero <= 3; ++zero) {
    meshes.push_back({.zero = zero});
    meshes.push_back({.tensor = 2, .expert = 2, .zero = zero});
    meshes.push_back({.expert_tensor = 2, .zero = zero});
    meshes.push_back({.expert = 2, .expert_tensor = 2, .zero = zero});
  }
  for (const ParallelConfig& parallel : meshes) {
    Config config = balanced_config();
    config.parallel = parallel;
    config.batch.micro = 1;
    config.optim.lora_rank = 2;
    config.optim.lora_targets = {"model/layers/*", "lm_head/weight"};
    if (contradictions(config, world).empty()) expect_traffic_of_a_step(config);
  }
}

/// Covers the gathers of latents.
TEST(Plan, CountsTheBytesOfLatents) {
  const int world = test_world().size();
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tensor = 2, .zero = 3}, ParallelConfig{.pipeline = 2, .tensor = 2, .sequence = true},
        ParallelConfig{.tensor = 2, .sequence = true}}) {
    for (const std::int64_t query_rank : {0, 5}) {
      Config config = balanced_config();
      config.parallel = parallel;
      make_latent(config.model, query_rank);
      config.model.recompute = query_rank > 0 ? Recompute::selective : Recompute::none;
      if (!contradictions(config, world).empty()) continue;
      expect_traffic_of_a_step(config);
    }
  }
}

/// Covers biases, which tensor and expert-tensor ranks divide.
TEST(Plan, CountsTheBytesOfBiases) {
  const int world = test_world().size();
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tensor = 2, .expert_tensor = 2, .zero = 3},
        ParallelConfig{.pipeline = 2, .tensor = 2, .sequence = true}, ParallelConfig{.expert = 2, .zero = 1}}) {
    Config config = balanced_config();
    config.parallel = parallel;
    config.model.qkv_bias = config.model.o_bias = config.model.ffn_bias = true;
    config.model.ffn = Activation::clamped_swiglu;
    config.moe.router_bias = true;
    if (!contradictions(config, world).empty()) continue;
    expect_traffic_of_a_step(config);
  }
}

/// Covers rows of a width other than the model's hidden width, and experts without weights, to which no rows are sent.
TEST(Plan, CountsTheBytesOfExpertsInAWidthOfTheirOwn) {
  const int world = test_world().size(), rank = test_world().rank();
  Config config = balanced_config();
  config.parallel = {.expert = world};
  if (!contradictions(config, world).empty()) return;
  const auto traffic = [&] {
    Config resolved = config;
    TinyTraining training(resolved, test_world());
    resolve(resolved, world);
    const Counted before = counted_by(training);
    training.run_steps_only(0, 1);
    const Counted after = counted_by(training);
    const Traffic planned = plan_rank(plan_input(resolved, world), rank).traffic();
    const auto axis = static_cast<std::size_t>(Axis::expert), kind = static_cast<std::size_t>(Transfer::all_to_all);
    const auto counted = after[axis][kind] - before[axis][kind];
    EXPECT_EQ(planned.of(Axis::expert, Transfer::all_to_all).bytes, counted) << "rank " << rank;
    return counted;
  };
  const auto whole = traffic();
  config.moe.latent_hidden = config.model.hidden / 4;
  const auto latent = traffic();
  config.moe.latent_hidden = config.model.hidden / 2;
  const auto half = traffic();
  // The remaining bytes are the numbers of rows, which do not depend on the width.
  EXPECT_EQ(whole - half, 2 * (half - latent));
  EXPECT_EQ(whole > half, world > 1);
  config.moe.zero_experts = config.moe.experts / 2;
  config.moe.copy_experts = config.moe.experts / 2;
  config.moe.top_k = 2 * config.moe.experts;
  // Choices, gates and the gradients of gates have twice as many columns per token.
  const std::int64_t tokens = config.batch.global * config.batch.seq_len / world, layers = config.model.layers - 1;
  const double more = number(layers * tokens * (world - 1) * config.moe.experts * 3 * 4);
  EXPECT_EQ(traffic(), half + more);
}

/// Covers the all-reduce of the routing counts that determine a bias.
TEST(Plan, CountsTheBytesOfABias) {
  const int world = test_world().size(), rank = test_world().rank();
  for (const ParallelConfig& parallel :
       {ParallelConfig{.expert = 2, .zero = 3}, ParallelConfig{.pipeline = 2, .tensor = 2}}) {
    Config config = balanced_config();
    config.parallel = parallel;
    config.moe.router = RouterKind::sigmoid;
    config.balance = {.expert = 0.05, .bias_rate = 0.01};
    if (!contradictions(config, world).empty()) continue;
    TinyTraining training(config, test_world());
    resolve(config, world);
    const Counted before = counted_by(training);
    training.run_steps_only(0, 1);
    const Counted after = counted_by(training);
    const Traffic planned = plan_rank(plan_input(config, world), rank).traffic();
    for (std::size_t a = 0; a < axis_names.size(); ++a) {
      const auto reduced = static_cast<std::size_t>(Transfer::all_reduce);
      EXPECT_EQ(planned.of(static_cast<Axis>(a), Transfer::all_reduce).bytes, after[a][reduced] - before[a][reduced])
          << name_of(config, world) << ", rank " << rank << ": " << axis_names[a];
    }
  }
}

Config planned_config() {
  Config config = sizable_config(4, 64, 4);
  config.batch = {.global = 16, .micro = 0, .seq_len = 64};
  return config;
}

TEST(Plan, SaysThePeakOfEveryRanksMemory) {
  const int world = test_world().size(), rank = test_world().rank();
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    int mesh = precision == Precision::f32 ? 0 : 1;
    for (Config config : meshes(planned_config(), world)) {
      // The test with four ranks covers most meshes, in both precisions; the others cover each mesh in one, or fewer.
      if (world != 4 && mesh++ % (world == 8 ? 4 : 2) != 0) continue;
      if (half_has_same_axes(config.parallel, world)) continue;
      config.run.precision = precision;
      if (config.run.precision == Precision::bf16) add_attention_experts(config);
      if (config.parallel.zero == 2) limit(config.moe, config.run);
      if (config.batch.micro == 1) config.batch.micro = 4 * world <= 16 ? 2 : 1;
      if (!contradictions(config, world).empty()) continue;
      const bool bf16 = config.run.precision == Precision::bf16;
      TinyTraining training(config, test_world(), bf16 ? DType::bf16 : DType::f32);
      resolve(config, world);
      const MemoryUse before = memory_of(training.setup().stream).use();
      const MemoryUse use = training.run(0, 2).back().memory;
      const RankMemory planned = plan_rank(plan_input(config, world), rank).memory;
      const std::string what = name_of(config, world) + ' ' + name_of(precision) + ", rank " + std::to_string(rank);
      const double kept = static_cast<double>(before.in_use[static_cast<std::size_t>(MemoryKind::buffers)]);
      expect_planned(planned, use, kept, what);
    }
  }
}

/// Expects the planned memory and bytes of this rank in the second step of a run. Does nothing if the configuration
/// does not fit the number of ranks, or if fewer ranks cover it. (Bytes depend on the size of a group, which
/// CountsTheBytesThatAStepHandsOver tests on every mesh.)
void expect_as_planned(Config config) {
  const int world = test_world().size(), rank = test_world().rank();
  if (!contradictions(config, world).empty() || half_has_same_axes(config.parallel, world)) return;
  TinyTraining training(config, test_world());
  resolve(config, world);
  const MemoryUse before = memory_of(training.setup().stream).use();
  training.run_steps_only(0, 1);
  const Counted first = counted_by(training);
  const MemoryUse use = training.run_steps_only(1, 1).back().memory;
  const Counted after = counted_by(training);
  const RankPlan planned = plan_rank(plan_input(config, world), rank);
  const std::string what = name_of(config, world) + ", rank " + std::to_string(rank);
  const double kept = static_cast<double>(before.in_use[static_cast<std::size_t>(MemoryKind::buffers)]);
  expect_planned(planned.memory, use, kept, what);
  expect_traffic(planned.traffic(), first, after, what);
}

/// Covers the sums of loads that a step keeps, with one row per pass.
TEST(Plan, SaysWhatLossesOverTheStepTake) {
  for (const ParallelConfig& parallel :
       {ParallelConfig{.expert = 2}, ParallelConfig{.pipeline = 2, .zero = 2},
        ParallelConfig{.pipeline = 2, .tensor = 2, .expert = 2, .zero = 3, .sequence = true}}) {
    Config config = planned_config();
    config.parallel = parallel;
    config.batch.micro = 1;
    config.model.recompute = Recompute::full;
    config.balance.scope = BalanceScope::global;
    config.balance.expert = 0.05;
    expect_as_planned(config);
    config.balance.mutual_information = 0.1;
    add_attention_experts(config);
    config.mtp.depth = 1;
    expect_as_planned(config);
  }
}

/// Covers the sums of squares that learnt rates are regularised by, and the results that their gradients read.
TEST(Plan, SaysWhatDropoutTakes) {
  for (const ParallelConfig& parallel :
       {ParallelConfig{}, ParallelConfig{.zero = 3}, ParallelConfig{.tensor = 2, .zero = 1},
        ParallelConfig{.pipeline = 2, .tensor = 2, .zero = 2, .sequence = true}}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      Config config = planned_config();
      config.parallel = parallel;
      config.batch.micro = 1;
      config.model.recompute = recompute;
      config.model.dropout = {.rate = 0.1};
      expect_as_planned(config);
      config.moe = {};
      config.balance = {};
      config.model.dropout.kind = DropoutKind::concrete;
      expect_as_planned(config);
    }
  }
}

/// Covers what is sent and received while a stage computes. Its blocks keep little else. With gpipe, or before its
/// first backward pass in a longer pipeline, a stage may run ahead of the next one, so a plan cannot know what is in
/// flight.
TEST(Plan, SaysWhatMessagesBetweenStagesTake) {
  for (const ScheduleKind schedule : {ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble}) {
    Config config = planned_config();
    config.parallel = {.pipeline = 2, .schedule = schedule};
    config.moe = {};
    config.balance = {};
    config.model.ffn_hidden = config.model.hidden / 2;
    config.model.recompute = Recompute::full;
    config.batch.micro = 1;
    expect_as_planned(config);
  }
}

/// Covers the operands of delayed weight gradients, which accumulate during a backward pass, and what ranks that divide
/// sequences gather for these gradients. At its peak a rank may hold fewer messages than planned, or more.
TEST(Plan, SaysWhatDelayedWeightGradientsTake) {
  const int world = test_world().size(), rank = test_world().rank();
  if (world != 2 && world != 4) return;
  for (const bool attention_experts : {false, true}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      Config config = planned_config();
      config.parallel = {
          .pipeline = 2, .tensor = world / 2, .schedule = ScheduleKind::zero_bubble, .sequence = world > 2};
      config.batch.micro = 2;
      config.model.recompute = recompute;
      if (attention_experts) add_attention_experts(config);
      TinyTraining training(config, test_world());
      resolve(config, world);
      const MemoryUse before = memory_of(training.setup().stream).use();
      const MemoryUse use = training.run_steps_only(0, 1).back().memory;
      const RankMemory planned = plan_rank(plan_input(config, world), rank).memory;
      const std::string what = name_of(config, world) + ", rank " + std::to_string(rank);
      const double kept = static_cast<double>(before.in_use[static_cast<std::size_t>(MemoryKind::buffers)]);
      expect_planned(planned, use, kept, what);
      const double message = number(config.batch.micro * config.batch.seq_len * config.model.hidden) * 4;
      EXPECT_NEAR(planned.activations, static_cast<double>(use.peak[static_cast<std::size_t>(MemoryKind::activations)]),
                  3 * message / config.parallel.tensor)
          << what;
    }
  }
}

/// Covers the sums that tensor ranks exchange to compare the copies of samples.
TEST(Plan, SaysWhatCopiesOfSamplesTake) {
  for (const ParallelConfig& parallel : {ParallelConfig{}, ParallelConfig{.tensor = 2, .zero = 1, .sequence = true},
                                         ParallelConfig{.pipeline = 2, .tensor = 2, .zero = 2}}) {
    Config config = planned_config();
    config.parallel = parallel;
    config.batch.micro = 2;
    config.model.consistency = 2;
    expect_as_planned(config);
  }
}

/// Covers the momentum, the exchange of matrices and the memory of its rounds and tables.
TEST(Plan, SaysWhatMuonTakes) {
  for (int zero = 0; zero <= 3; ++zero) {
    for (const ParallelConfig& parallel :
         {ParallelConfig{.zero = zero}, ParallelConfig{.expert = 2, .zero = zero},
          ParallelConfig{.tensor = 2, .zero = zero, .sequence = true}, ParallelConfig{.expert_tensor = 2, .zero = zero},
          ParallelConfig{.pipeline = 2, .tensor = 2, .expert = 2, .zero = zero}}) {
      Config config = planned_config();
      config.parallel = parallel;
      config.batch.micro = 1;
      config.optim.rule = UpdateRuleName::muon;
      config.optim.adamw_only = {"*/mlp/gate/weight", "*/k_proj/weight"};
      config.run.audit_every = zero % 2 ? 100 : 0;  // digests take memory; comparisons of copies are not planned
      expect_as_planned(config);
    }
  }
}

/// Covers the moving average of the weights, of a model in f32 and with frozen tensors.
TEST(Plan, SaysWhatAnAverageTakes) {
  for (int zero = 0; zero <= 3; ++zero) {
    for (const UpdateRuleName rule : {UpdateRuleName::adamw, UpdateRuleName::muon}) {
      Config config = planned_config();
      config.parallel = {.zero = zero};
      config.batch.micro = 1;
      config.optim.rule = rule;
      config.optim.ema = 0.9;
      if (zero == 1) config.optim.train_only = {"model/layers/*/mlp/experts/[12]/*"};
      expect_as_planned(config);
    }
  }
}

/// Covers states in bf16 and the table that rounds them, which has the slices of every tensor.
TEST(Plan, SaysWhatMomentsInBf16Take) {
  for (int zero = 0; zero <= 3; ++zero) {
    for (const UpdateRuleName rule : {UpdateRuleName::adamw, UpdateRuleName::muon}) {
      for (const ParallelConfig& parallel :
           {ParallelConfig{.expert = 2, .zero = zero}, ParallelConfig{.tensor = 2, .zero = zero, .sequence = true},
            ParallelConfig{.pipeline = 2, .tensor = 2, .expert = 2, .zero = zero}}) {
        Config config = planned_config();
        config.parallel = parallel;
        config.batch.micro = 1;
        config.optim.rule = rule;
        config.optim.moments = MomentType::bf16;
        if (rule == UpdateRuleName::muon) config.optim.adamw_only = {"*/k_proj/weight"};
        if (zero == 1) config.optim.train_only = {"model/layers/*/mlp/experts/[12]/*"};
        config.run.audit_every = zero % 2 ? 100 : 0;
        expect_as_planned(config);
      }
    }
  }
}

/// Covers a model with sub-dimensions. Every token chooses all sub-dimensions that are not always active.
TEST(Plan, SaysWhatSubDimensionsTake) {
  for (const ParallelConfig& parallel :
       {ParallelConfig{.zero = 3}, ParallelConfig{.tensor = 2, .zero = 1, .sequence = true},
        ParallelConfig{.pipeline = 2, .tensor = 2}}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      Config config = planned_config();
      config.moe = {};
      config.balance = {.sub_dimension = 0.05};
      config.sub_dimensions = {
          .attention = 4, .ffn = 4, .active = 4, .shared = 2, .input_gates = recompute != Recompute::full};
      config.parallel = parallel;
      config.model.recompute = recompute;
      config.batch.micro = 1;
      expect_as_planned(config);
    }
  }
}

/// Covers a backward and a forward pass that take turns.
TEST(Plan, SaysWhatTwoMicroBatchesTake) {
  for (const ParallelConfig& parallel :
       {ParallelConfig{.expert = 2}, ParallelConfig{.expert = 2, .zero = 2}, ParallelConfig{.expert = 4, .zero = 1},
        ParallelConfig{.expert = 4, .host_ranks = 2},
        ParallelConfig{.tensor = 2, .expert = 2, .expert_tensor = 2, .sequence = true}}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      Config config = planned_config();
      config.parallel = parallel;
      config.parallel.overlap = Overlap::batches;
      config.model.recompute = recompute;
      config.batch.micro = 1;
      expect_as_planned(config);
    }
  }
}

/// Routing is not balanced here, unlike in other tests: neither the bytes nor the memory depend on it.
TEST(Plan, SaysWhatBoundedExchangesTake) {
  for (const ParallelConfig& parallel :
       {ParallelConfig{.expert = 2}, ParallelConfig{.expert = 4, .zero = 1, .host_ranks = 2},
        ParallelConfig{.tensor = 2, .expert = 2, .expert_tensor = 2, .sequence = true}}) {
    for (const double capacity : {0.0, 1.0}) {
      Config config = sizable_config(3, 64, 8);
      config.batch = {.global = 16, .micro = 2, .seq_len = 64};
      config.moe.top_k = 2;
      config.moe.capacity_factor = capacity;
      config.moe.expert_sizes = {64, 64, 64, 96, 64, 64, 64, 96};
      config.parallel = parallel;
      config.parallel.expert_exchange = ExpertExchange::bounded;
      config.model.recompute = capacity > 0 ? Recompute::selective : Recompute::none;
      expect_as_planned(config);
    }
  }
}

/// Covers spare slots, the weights and gradients of replicas, and the memory that sends them. Experts have different
/// widths, so that replicas help although tokens choose all experts equally often.
TEST(Plan, SaysWhatReplicasTake) {
  for (const ParallelConfig& parallel :
       {ParallelConfig{.expert = 2}, ParallelConfig{.expert = 2, .zero = 2}, ParallelConfig{.expert = 2, .zero = 3},
        ParallelConfig{.expert = 4, .zero = 1}, ParallelConfig{.expert = 4, .host_ranks = 2},
        ParallelConfig{.expert = 4, .overlap = Overlap::batches},
        ParallelConfig{.tensor = 2, .expert = 2, .expert_tensor = 2, .sequence = true},
        ParallelConfig{.pipeline = 2, .expert = 2, .zero = 1}}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      Config config = sizable_config(3, 32, 8);  // no rank gives all rows away, so all tokens go to all ranks
      config.batch = {.global = 16, .micro = 1, .seq_len = 32};
      const std::int64_t width = config.moe.expert_hidden;
      for (std::int64_t e = 0; e < config.moe.experts; ++e) {
        config.moe.expert_sizes.push_back(e < config.moe.experts / 2 ? width * 5 / 4 : width);
      }
      config.parallel = parallel;
      config.parallel.replicas = recompute == Recompute::none ? 2 : 1;
      config.model.recompute = recompute;
      expect_as_planned(config);
    }
  }
}

/// The activations of hash and uniform routers are not compared, since these do not balance the load.
TEST(Plan, SaysTheMemoryOfEveryRouter) {
  const int world = test_world().size(), rank = test_world().rank();
  for (const RouterKind router : {RouterKind::sigmoid, RouterKind::sqrt_softplus, RouterKind::random, RouterKind::noisy,
                                  RouterKind::mlp, RouterKind::hash, RouterKind::uniform}) {
    for (const ParallelConfig& parallel :
         {ParallelConfig{.zero = 3}, ParallelConfig{.tensor = 2, .expert = 2, .zero = 1, .sequence = true},
          ParallelConfig{.pipeline = 4, .expert = 2}}) {
      Config config = planned_config();
      config.parallel = parallel;
      config.batch.micro = 1;
      config.moe.router = router;
      config.moe.router_hidden = 40;
      if (router == RouterKind::sigmoid) config.balance = {.expert = 0.05, .bias_rate = 0.01};
      if (router == RouterKind::sqrt_softplus) {  // also covers zero and copy experts and latent_hidden
        config.balance = {.expert = 0.05, .bias_rate = 0.01};
        config.moe.zero_experts = config.moe.copy_experts = 2;
        config.moe.top_k += 4;
        config.moe.latent_hidden = 24;
      }
      if (router == RouterKind::mlp) config.balance = {.mutual_information = 0.1};
      if (router == RouterKind::hash) config.moe.top_k = 1;
      if (!has_scores(router)) config.balance = {};
      if (!contradictions(config, world).empty() || half_has_same_axes(parallel, world)) continue;
      TinyTraining training(config, test_world());
      resolve(config, world);
      const MemoryUse before = memory_of(training.setup().stream).use();
      const MemoryUse use = training.run(0, 2).back().memory;
      const double kept = static_cast<double>(before.in_use[static_cast<std::size_t>(MemoryKind::buffers)]);
      RankMemory planned = plan_rank(plan_input(config, world), rank).memory;
      const std::string what = name_of(config, world) + " router " + std::to_string(static_cast<int>(router)) +
                               ", rank " + std::to_string(rank);
      if (!has_scores(router))
        planned.activations = static_cast<double>(use.peak[static_cast<std::size_t>(MemoryKind::activations)]);
      expect_planned(planned, use, kept, what);
    }
  }
}

/// Returns the bytes that a rank sends in the all-to-alls of one sparse layer and micro-batch. `out`, `in`: rows for
/// other ranks' experts, and rows that other ranks send to this one.
///   1. forward: rows with k experts and k gates, then their results,
///   2. backward: gradients of the results, then gradients of the rows and of the k gates.
double exchanged_bytes(const Config& config, int ranks, double out, double in) {
  const double row = number(config.model.hidden) * 4, choices = number(config.moe.top_k) * 4;
  return 16 * (ranks - 1) + out * (row + 2 * choices) + in * row + out * row + in * (row + choices);
}

/// Returns exchanged_bytes() of rank `own` in a layer in which token t chooses the experts (t · k + j) mod E, 0 ≤ j <
/// k.
double bytes_of_even_routing(const Config& config, const Placement& placement, std::int64_t tokens, int own) {
  std::vector<double> rows(static_cast<std::size_t>(placement.ranks()));
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::set<int> owners;
    for (std::int64_t j = 0; j < config.moe.top_k; ++j) {
      owners.insert(placement.owner[static_cast<std::size_t>((t * config.moe.top_k + j) % placement.experts())]);
    }
    for (const int owner : owners) ++rows[static_cast<std::size_t>(owner)];
  }
  const double self = rows[static_cast<std::size_t>(own)];
  return exchanged_bytes(config, placement.ranks(), std::accumulate(rows.begin(), rows.end(), 0.0) - self,
                         self * (placement.ranks() - 1));
}

/// Returns the mean of exchanged_bytes() over all ways to choose k of E experts. The share of the tokens that need rank
/// r, which has E_r experts, is 1 − C(E − E_r, k) / C(E, k).
double bytes_of_even_chances(const Config& config, const Placement& placement, std::int64_t tokens, int own) {
  const auto sets = [&](std::int64_t of) {
    return std::exp(std::lgamma(of + 1.0) - std::lgamma(of - number(config.moe.top_k) + 1.0));
  };
  const auto rows = [&](int rank) {
    const std::int64_t all = placement.experts(), rest = all - std::ssize(placement.experts_of(rank));
    return number(tokens) * (1 - (rest < config.moe.top_k ? 0 : sets(rest) / sets(all)));
  };
  double out = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) out += rank == own ? 0 : rows(rank);
  return exchanged_bytes(config, placement.ranks(), out, rows(own) * (placement.ranks() - 1));
}

/// Layers differ in their number of experts. With moe.even_routing all experts are chosen equally often, as plans
/// assume. But it determines which ranks a token needs, where a plan takes the mean over all ways to choose. So bytes
/// between expert ranks differ slightly from the plan.
TEST(Plan, KnowsLayersWithDifferentNumbersOfExperts) {
  const int world = test_world().size(), rank = test_world().rank();
  for (const ParallelConfig& parallel :
       {ParallelConfig{.zero = 3}, ParallelConfig{.tensor = 2, .expert = 2, .zero = 1, .sequence = true},
        ParallelConfig{.pipeline = 2, .expert = 4, .placement = PlacementKind::cost}}) {
    Config config = planned_config();
    config.parallel = parallel;
    config.batch.micro = 1;
    config.moe.even_routing = true;
    config.moe.top_k = 2;
    config.moe.experts_of_layers = {4, 8, 4};
    config.data.document_mask = parallel.zero == 3;
    config.moe.experts = 8;
    if (!contradictions(config, world).empty()) continue;
    TinyTraining training(config, test_world());
    resolve(config, world);
    const MemoryUse before = memory_of(training.setup().stream).use();
    training.run_steps_only(0, 1);
    const Counted first = counted_by(training);
    const MemoryUse use = training.run_steps_only(1, 1).back().memory;
    const Counted second = counted_by(training);
    const RankPlan planned = plan_rank(plan_input(config, world), rank);
    const std::string what = name_of(config, world) + ", rank " + std::to_string(rank);
    const double kept = static_cast<double>(before.in_use[static_cast<std::size_t>(MemoryKind::buffers)]);
    expect_planned(planned.memory, use, kept, what);
    const auto expert = static_cast<std::size_t>(Axis::expert),
               all_to_all = static_cast<std::size_t>(Transfer::all_to_all);
    const double passes = number(micro_batches(config, world));
    const std::int64_t run = config.batch.seq_len / parallel.tensor;
    const MeshCoordinates& at = training.setup().mesh.index;
    const std::vector<Range> stages = stage_blocks(config, parallel.pipeline);
    double counted = 0, chances = 0, a_row = 0;
    for (std::int64_t layer = 1; layer < config.model.layers && parallel.expert > 1; ++layer) {
      const Mixture mixture = *routed_experts(config, layer);
      if (common(stages[static_cast<std::size_t>(at.pipeline)], {layer, 1}).count == 0) continue;
      const Placement placement = place_experts(config, mixture, parallel.expert, {});
      counted += passes * bytes_of_even_routing(config, placement, run, at.expert);
      chances += passes * bytes_of_even_chances(config, placement, run, at.expert);
      a_row +=
          passes * (exchanged_bytes(config, parallel.expert, 1, 1) - exchanged_bytes(config, parallel.expert, 0, 0));
    }
    for (std::size_t a = 0; a < axis_names.size(); ++a) {
      for (std::size_t t = 0; t < transfer_names.size(); ++t) {
        const double bytes = planned.traffic().of(static_cast<Axis>(a), static_cast<Transfer>(t)).bytes;
        const std::string where = what + ": " + std::string(transfer_names[t]) + " on " + std::string(axis_names[a]);
        if (a == expert && t == all_to_all) {
          EXPECT_EQ(second[a][t] - first[a][t], counted) << where;
          EXPECT_NEAR(bytes, chances, parallel.expert * a_row) << where;  // rounded to whole rows
        } else {
          EXPECT_EQ(bytes, second[a][t] - first[a][t]) << where;
        }
      }
    }
  }
}

/// The plan is an upper bound of the memory of an evaluation, which frees memory as early as possible.
TEST(Plan, CoversWhatAnEvaluationNeeds) {
  const int world = test_world().size(), rank = test_world().rank();
  for (const ParallelConfig& parallel :
       {ParallelConfig{}, ParallelConfig{.expert = 2}, ParallelConfig{.tensor = 2, .expert = 2, .sequence = true},
        ParallelConfig{.pipeline = 2}, ParallelConfig{.pipeline = 2, .tensor = 2}}) {
    Config config = planned_config();
    config.parallel = parallel;
    config.batch.micro = 2;
    config.model.recompute = Recompute::full;
    if (!contradictions(config, world).empty()) continue;
    resolve(config, world);
    const auto setup = make_setup(test_world(), mesh_shape(parallel));
    StagedModel model(config, setup->stream, setup->mesh, DType::f32, false);
    model.initialize(1);
    const TinyData data(config.model.vocab, 4000);
    evaluate(model, *setup, config, data.loader(config), 0);
    const MemoryUse use = memory_of(setup->stream).use();
    const auto peak = [&](MemoryKind kind) { return static_cast<double>(use.peak[static_cast<std::size_t>(kind)]); };
    const MeshPlan plan = plan_inference(config, world, Reading::evaluate);
    const int row = rank / (world / parallel.pipeline);
    const RankMemory& planned = plan.ranks[static_cast<std::size_t>(row)].memory;
    const std::string what = name_of(config, world) + ", rank " + std::to_string(rank);
    EXPECT_EQ(planned.weights, peak(MemoryKind::weights)) << what;
    EXPECT_LE(peak(MemoryKind::activations), planned.activations) << what;
    EXPECT_LE(planned.activations, 4 * peak(MemoryKind::activations)) << what;
  }
}

}  // namespace
}  // namespace lyceum
