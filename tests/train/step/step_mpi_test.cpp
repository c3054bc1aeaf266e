#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

std::vector<int> expert_degrees(int world) {
  std::vector<int> degrees;
  for (int ep = 1; ep <= world; ++ep) {
    if (world % ep == 0) degrees.push_back(ep);
  }
  return degrees;
}

TEST(TrainStep, EveryMeshIsTheSerialRun) {
  const Trajectory serial = train(tiny_config(), ProcessGroup::self(), 4);
  EXPECT_LT(serial.steps.back().loss, serial.steps.front().loss);
  const int world = test_world().size();
  for (const int ep : expert_degrees(world)) {
    Config config = tiny_config();
    config.parallel.expert = ep;
    expect_same_run(train(config, test_world(), 4), serial, "ep " + std::to_string(ep));
  }
}

TEST(TrainStep, AccumulationAndRecomputationChangeNothing) {
  const Trajectory serial = train(tiny_config(), ProcessGroup::self(), 3);
  const int world = test_world().size();
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    Config config = tiny_config();
    config.parallel.expert = world;
    config.batch.micro = 1;
    config.model.recompute = recompute;
    expect_same_run(train(config, test_world(), 3), serial, "recompute " + name_of(recompute));
  }
}

/// Collective. Returns Σ (a − b)² over the weights of the whole model, each logical element once; Σ a² if `b` is null.
double squares(const ProcessGroup& world, const std::vector<Trajectory::Slice>& a,
               const std::vector<Trajectory::Slice>* b = nullptr) {
  std::array<double, 1> sum{0};
  for (std::size_t p = 0; p < a.size(); ++p) {
    if (a[p].name.starts_with("optimizer/")) continue;
    for (std::size_t i = 0; i < a[p].values.size(); ++i) {
      const double before = b ? static_cast<double>((*b)[p].values[i]) : 0.0;
      sum[0] += std::pow(static_cast<double>(a[p].values[i]) - before, 2);
    }
  }
  world.all_reduce(std::span(sum));
  return sum[0];
}

TEST(TrainStep, TellsTheNormsOfWeightsAndTheirChange) {
  const int ranks = test_world().size();
  for (int kind = 0; kind < 4; ++kind) {
    Config config = tiny_config();
    config.parallel.zero = kind;
    config.model.tie_embeddings = kind > 0;
    if (kind == 1 && ranks > 1) config.parallel.pipeline = 2;  // two ranks hold the table; it counts once
    if (kind == 3 && ranks > 1) config.parallel.tensor = 2;
    config.parallel.expert = kind % 2 == 0 ? ranks : 1;
    TinyTraining training(config, test_world(), kind == 2 ? DType::bf16 : DType::f32);
    const ProcessGroup& world = training.setup().mesh.world;
    for (int step = 0; step < 2; ++step) {
      const std::vector<Trajectory::Slice> before = training.weights();
      const StepResult result = training.run(step, 1).front();
      const std::vector<Trajectory::Slice> after = training.weights();
      const std::string where = "zero " + std::to_string(kind) + " step " + std::to_string(step);
      expect_close(result.weight_norm, std::sqrt(squares(world, after)), 1e-12, where + " weight norm");
      expect_close(result.update_norm, std::sqrt(squares(world, after, &before)), 1e-4, where + " update norm");
    }
  }
}

TEST(TrainStep, BatchScopeIsTheSameOnEveryMesh) {
  Config config = tiny_config();
  config.balance.scope = BalanceScope::batch;
  config.balance.mutual_information = 0.2;
  config.balance.concentration = 0.1;
  const Trajectory serial = train(config, ProcessGroup::self(), 3);
  const int world = test_world().size();
  for (const int ep : expert_degrees(world)) {
    config.parallel.expert = ep;
    expect_same_run(train(config, test_world(), 3), serial, "batch scope, ep " + std::to_string(ep));
  }
}

TEST(TrainStep, TiedEmbeddingsAndRenormalizedGates) {
  Config config = tiny_config();
  config.model.tie_embeddings = true;
  config.moe.gates = Gates::renormalized;
  const Trajectory serial = train(config, ProcessGroup::self(), 3);
  config.parallel.expert = test_world().size();
  expect_same_run(train(config, test_world(), 3), serial, "tied");
}

TEST(TrainStep, OneMeshGivesTheSameBitsTwice) {
  Config config = tiny_config();
  config.parallel.expert = test_world().size();
  const Trajectory a = train(config, test_world(), 3), b = train(config, test_world(), 3);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.steps.back().loss, b.steps.back().loss);
  EXPECT_EQ(a.steps.back().grad_norm, b.steps.back().grad_norm);
}

TEST(TrainStep, Bf16FollowsF32) {
  Config config = tiny_config();
  const Trajectory serial = train(config, ProcessGroup::self(), 4);
  config.parallel.expert = test_world().size();
  const Trajectory bf16 = train(config, test_world(), 4, DType::bf16);
  for (std::size_t s = 0; s < 4; ++s) expect_close(bf16.steps[s].loss, serial.steps[s].loss, 2e-2, "bf16 loss");
}

TEST(TrainStep, ANonFiniteGradientIsLeftOutOnAllRanks) {
  Config config = tiny_config();
  ProcessGroup world = test_world();
  const int ranks = world.size(), rank = world.rank();
  config.parallel.expert = ranks;
  resolve(config, ranks);
  const auto setup = make_setup(std::move(world), {.expert = ranks});
  const TinyData data(config.model.vocab);
  StagedModel model(config, setup->stream, setup->mesh, DType::f32, true);
  Zero zero(model.units(), setup->mesh, setup->stream, zero_options(config, setup->mesh));
  zero.initialize(1);
  Optimizer optimizer(config.optim, setup->mesh, setup->stream, zero.shares());
  TrainStep step(config, *setup, model, zero, optimizer);
  const TokenLoader loader = data.loader(config);
  // The last expert unit of the last rank has a NaN. All ranks must skip the step, and no weight may change.
  const ParameterUnit& experts = *model.units()[model.units().size() - 3];  // before the last norm and the head
  ASSERT_EQ(experts.group(), ParameterUnit::Group::expert);
  float& poisoned = experts.values().data<float>()[0];
  const float before = poisoned, other = experts.values().data<float>()[1];
  if (rank == ranks - 1) poisoned = NAN;
  const StepResult bad = step.run(loader, 0, 0, 1e-2);
  EXPECT_TRUE(bad.skipped);
  EXPECT_EQ(bad.update_norm, 0);
  EXPECT_TRUE(rank != ranks - 1 || !bad.culprit.empty());  // other ranks get NaN through tokens
  EXPECT_EQ(experts.values().data<float>()[1], other);
  EXPECT_EQ(optimizer.updates(), 0);
  poisoned = before;
  EXPECT_FALSE(step.run(loader, 1, 8, 1e-2).skipped);
  EXPECT_EQ(optimizer.updates(), 1);
}

}  // namespace
}  // namespace lyceum
