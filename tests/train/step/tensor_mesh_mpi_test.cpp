#include <gtest/gtest.h>

#include <filesystem>

#include "io/checkpoint/checkpoint.h"
#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

constexpr int tensor_steps = 5;

/// A model that tensor ranks share unevenly wherever this is possible: an odd vocabulary, odd widths, experts of
/// different widths, and sequences that do not end at the boundary of a rank's span of tokens.
Config tensor_config() {
  Config config = tiny_config();
  config.batch.seq_len = 11;
  config.moe.expert_sizes = {5, 11, 7, 4, 16, 9, 33, 6, 8};
  return config;
}

struct MeshCase {
  int tensor, expert, expert_tensor;
  std::string text() const {
    return "tp" + std::to_string(tensor) + " ep" + std::to_string(expert) + " etp" + std::to_string(expert_tensor);
  }
};

/// Returns the meshes of `world` ranks with at most `most` tensor ranks and expert_tensor of at most 4.
std::vector<MeshCase> tensor_meshes(int world, int most) {
  std::vector<MeshCase> all;
  for (const int tensor : {1, 2, 4, 8}) {
    for (const int expert : {1, 2, 4, 8}) {
      for (const int expert_tensor : {1, 2, 4}) {
        const bool fits = world % tensor == 0 && world % (expert * expert_tensor) == 0;
        if (fits && tensor <= most && tensor * expert_tensor > 1) all.push_back({tensor, expert, expert_tensor});
      }
    }
  }
  return all;
}

Config on_mesh(Config config, const MeshCase& mesh, bool sequence = false) {
  config.parallel.tensor = mesh.tensor;
  config.parallel.expert = mesh.expert;
  config.parallel.expert_tensor = mesh.expert_tensor;
  config.parallel.sequence = sequence;
  return config;
}

/// Expects that every mesh with at most `most` tensor ranks, with and without sequence parallelism, gives the serial
/// run.
void expect_every_mesh(const Config& config, int most, int count = tensor_steps) {
  const Trajectory serial = train(config, ProcessGroup::self(), count);
  EXPECT_LT(serial.steps.back().loss, serial.steps.front().loss);
  for (const MeshCase& mesh : tensor_meshes(world_size(), most)) {
    for (const bool sequence : {false, true}) {
      if (sequence && mesh.tensor == 1) continue;
      const Trajectory run = train(on_mesh(config, mesh, sequence), test_world(), count);
      expect_same_run(run, serial, mesh.text() + (sequence ? " sequence" : ""));
    }
  }
}

TEST(TensorMesh, EveryMeshIsTheSerialRun) { expect_every_mesh(tensor_config(), 2); }

TEST(TensorMesh, FourTensorRanksHaveAHeadEach) {
  if (world_size() < 4) return;
  Config config = tensor_config();
  config.model.kv_heads = 4;
  const Trajectory serial = train(config, ProcessGroup::self(), tensor_steps);
  for (const int expert : {1, world_size()}) {
    for (const bool sequence : {false, true}) {
      const Trajectory run = train(on_mesh(config, {4, expert, 1}, sequence), test_world(), tensor_steps);
      expect_same_run(run, serial, "tp4 ep" + std::to_string(expert) + (sequence ? " sequence" : ""));
    }
  }
}

/// Returns a mesh of `world` ranks that uses as many axes as possible.
MeshCase fullest(int world) {
  return {.tensor = std::min(world, 2), .expert = std::max(world / 2, 1), .expert_tensor = std::min(world, 2)};
}

void expect_fullest(const Config& config, const std::string& name) {
  const Trajectory serial = train(config, ProcessGroup::self(), 3);
  for (const bool sequence : {false, true}) {
    const Trajectory run = train(on_mesh(config, fullest(world_size()), sequence), test_world(), 3);
    expect_same_run(run, serial, name + (sequence ? " sequence" : ""));
  }
}

TEST(TensorMesh, TiedEmbeddingsAndRenormalizedGates) {
  Config config = tensor_config();
  config.model.tie_embeddings = true;
  config.moe.gates = Gates::renormalized;
  expect_fullest(config, "tied");
}

TEST(TensorMesh, AccumulationAndRecomputation) {
  Config config = tensor_config();
  config.batch.micro = 1;
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    config.model.recompute = recompute;
    expect_fullest(config, name_of(recompute));
  }
}

TEST(TensorMesh, BatchScopeAndNoSharedExperts) {
  Config config = tensor_config();
  config.balance.scope = BalanceScope::batch;
  config.moe.shared_experts = 0;
  expect_fullest(config, "batch scope");
}

TEST(TensorMesh, DenseModel) {
  Config config = tensor_config();
  config.moe = {};
  config.balance = {};
  const Trajectory serial = train(config, ProcessGroup::self(), 3);
  for (const bool sequence : {false, true}) {
    const Config mesh = on_mesh(config, {std::min(world_size(), 2), 1, 1}, sequence);
    expect_same_run(train(mesh, test_world(), 3), serial, "dense");
  }
}

TEST(TensorMesh, FewerTokensThanTensorRanks) {
  Config config = tensor_config();
  config.batch.seq_len = 3;
  config.batch.micro = 1;
  config.model.heads = config.model.kv_heads = 8;
  config.model.head_dim = 2;
  const Trajectory serial = train(config, ProcessGroup::self(), 3);
  for (const bool sequence : {false, true}) {
    const Trajectory run = train(on_mesh(config, {world_size(), world_size(), 1}, sequence), test_world(), 3);
    expect_same_run(run, serial, "few tokens");
  }
}

TEST(TensorMesh, OneMeshGivesTheSameBitsTwice) {
  const Config config = on_mesh(tensor_config(), fullest(world_size()), true);
  const Trajectory a = train(config, test_world(), 3), b = train(config, test_world(), 3);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.steps.back().loss, b.steps.back().loss);
  EXPECT_EQ(a.steps.back().grad_norm, b.steps.back().grad_norm);
}

TEST(TensorMesh, Bf16FollowsF32) {
  const Trajectory serial = train(tensor_config(), ProcessGroup::self(), 4);
  for (const bool sequence : {false, true}) {
    const Config config = on_mesh(tensor_config(), fullest(world_size()), sequence);
    const Trajectory bf16 = train(config, test_world(), 4, DType::bf16);
    for (std::size_t s = 0; s < 4; ++s) expect_close(bf16.steps[s].loss, serial.steps[s].loss, 2e-2, "bf16 loss");
  }
}

/// Norms and routers, of which all ranks hold copies, keep the same bits on all ranks.
TEST(TensorMesh, CopiesStayCopies) {
  for (const bool sequence : {false, true}) {
    const Config config = on_mesh(tensor_config(), fullest(world_size()), sequence);
    TinyTraining training(config, test_world());
    training.run(0, 3);
    for (const auto& unit : training.model().units()) {
      if (unit->group() != ParameterUnit::Group::replicated) continue;
      const std::span<const float> values = unit->values().span<float>();
      std::vector<float> most(values.begin(), values.end()), own = most;
      training.setup().mesh.world.all_reduce(std::span(most), Reduction::max);
      EXPECT_EQ(most, own) << unit->name();
    }
  }
}

TEST(TensorMesh, ACheckpointGoesOnOnAnyMesh) {
  const ProcessGroup world = test_world();
  const SharedDirectory shared(world);
  const std::filesystem::path& root = shared.path();
  const Config serial = tensor_config(), mesh = on_mesh(tensor_config(), fullest(world.size()), true);
  const std::vector<StepResult> whole = train(serial, ProcessGroup::self(), tensor_steps).steps;
  const std::vector<StepResult> rest(whole.begin() + 3, whole.end());

  TinyTraining spread(mesh, test_world());
  spread.run(0, 3);
  save(spread, root / "spread", 3);
  world.barrier();
  TinyTraining alone(serial, ProcessGroup::self());
  expect_same_steps(resume(alone, root / "spread", 3, 2), rest, "mesh to one rank");
  TinyTraining flat(on_mesh(tensor_config(), {1, 1, 1}), test_world());
  expect_same_steps(resume(flat, root / "spread", 3, 2), rest, "mesh to data ranks");

  if (world.rank() == 0) {
    TinyTraining first(serial, ProcessGroup::self());
    first.run(0, 3);
    save(first, root / "alone", 3);
  }
  world.barrier();
  TinyTraining second(mesh, test_world());
  expect_same_steps(resume(second, root / "alone", 3, 2), rest, "one rank to mesh");
}

}  // namespace
}  // namespace lyceum
