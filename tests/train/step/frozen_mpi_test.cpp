#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "model/tensor_pattern.h"
#include "support/shared_directory.h"
#include "support/temporary_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

/// Trains what a run after `lyceum convert insert` would: two of nine experts and their rows of an mlp router; also one
/// of the matrices q, k, v, and the shared experts of a layer.
Config frozen_config() {
  Config config = tiny_config();
  config.moe.router = RouterKind::mlp;
  config.moe.router_hidden = 10;
  config.optim.clip_norm = 0.05;
  config.optim.train_only = {"model/layers/*/mlp/experts/[78]/*", "model/layers/*/mlp/gate/weight[7:]",
                             "model/layers/2/self_attn/k_proj/weight", "model/layers/2/mlp/shared_experts/*"};
  config.optim.router_penalty = 0.3;
  config.optim.router_penalty_from = 7;
  return config;
}

bool is_trained(const std::string& name) {
  return name.find("/experts/7/") != std::string::npos || name.find("/experts/8/") != std::string::npos ||
         name.find("mlp/gate/weight") != std::string::npos || name == "model/layers/2/self_attn/k_proj/weight" ||
         name.starts_with("model/layers/2/mlp/shared_experts");
}

/// Frozen tensors, and frozen rows of a trained tensor, keep their bits. Frozen tensors have no moments. Trained values
/// change.
TEST(Frozen, KeepsItsBitsAndHasNoMoments) {
  for (const DType type : {DType::f32, DType::bf16}) {
    TinyTraining training(frozen_config(), ProcessGroup::self(), type);
    const auto before = by_name(training.weights());
    training.run(0, 3);
    const auto after = by_name(training.weights());
    ASSERT_EQ(after.size(), before.size());
    for (const auto& [name, values] : after) {
      const bool moment = is_optimizer_state(name), row = name.ends_with("mlp/gate/weight");
      const std::string tensor = moment ? name.substr(name.find("model/")) : name;
      // A unit has moments for all its parameters. So q and v, in the unit of k, have moments, which are zero.
      const bool beside = tensor.starts_with("model/layers/2/self_attn/") && !tensor.ends_with("o_proj/weight");
      EXPECT_TRUE(!moment || is_trained(tensor) || beside) << name;
      const std::size_t still = row ? 7 * 10 : is_trained(tensor) ? 0 : values.size();
      const std::vector<float>& old = before.at(name);
      EXPECT_TRUE(std::equal(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(still), old.begin())) << name;
      if (still < values.size()) {
        EXPECT_NE(values, old) << name;
      }
    }
  }
}

/// Frozen units have no gradients and no moments in memory, and the gradient norm covers trained elements only.
TEST(Frozen, NeedsNoMemoryAndHasNoPartInNorms) {
  Config config = frozen_config();
  config.run.audit_every = 0;  // digests would also take memory
  TinyTraining training(config, ProcessGroup::self());
  const MemoryUse use = training.run(0, 1).back().memory;
  std::int64_t trained = 0, all = 0;
  for (const ParameterUnit* unit : training.model().units()) {
    all += unit->size();
    if (unit->trained()) trained += unit->size();
  }
  const auto bytes = [&](MemoryKind kind) { return use.in_use[static_cast<std::size_t>(kind)]; };
  EXPECT_LT(4 * trained, all);
  EXPECT_EQ(bytes(MemoryKind::weights), 4 * all);
  EXPECT_EQ(bytes(MemoryKind::gradients), 4 * trained);
  EXPECT_EQ(bytes(MemoryKind::optimizer), 8 * trained);
  // The expected norm is computed from a run that trains everything: the sum omits the gradients of frozen elements.
  config.optim.clip_norm = 0;
  const StepResult own = TinyTraining(config, ProcessGroup::self()).run(0, 1).front();
  config.optim.train_only = {};
  TinyTraining whole(config, ProcessGroup::self());
  whole.run(0, 1);
  double squares = 0;
  const std::vector<TensorPattern> patterns = tensor_patterns(frozen_config().optim.train_only);
  for (const ParameterUnit* unit : whole.model().units()) {
    for (const auto& parameter : unit->parameters()) {
      for (const Range& part : named_elements(*parameter, patterns)) {
        const auto gradient = parameter->gradient.span<float>().subspan(static_cast<std::size_t>(part.first),
                                                                        static_cast<std::size_t>(part.count));
        for (const float g : gradient) squares += static_cast<double>(g) * g;
      }
    }
  }
  EXPECT_GT(squares, 0);
  expect_close(own.grad_norm, std::sqrt(squares), 1e-5, "gradient norm");
}

/// Runs on meshes of every axis and with every ZeRO stage equal the serial run.
TEST(Frozen, TrainsTheSameOnEveryMesh) {
  const int world = world_size();
  using enum ScheduleKind;
  const auto stage = [](Config& config) {  // some pipeline stages train nothing
    config.optim.train_only = {"model/layers/0/*"};
    config.optim.router_penalty_from = 0;
  };
  const auto vectors = [](Config& config) {  // vectors in units whose matrices are frozen
    config.model.qkv_bias = config.moe.shared_gate = true;
    config.model.qk_norm = QkNormKind::all;
    config.optim.train_only = {"model/layers/*/self_attn/q_proj/bias", "model/layers/1/self_attn/k_norm/weight",
                               "model/layers/2/mlp/shared_expert_gate/weight"};
    config.optim.router_penalty = 0;
    config.optim.router_penalty_from = 0;
  };
  std::size_t variant = 0;
  for (const auto& change : {std::function<void(Config&)>([](Config&) {}), {stage}, {vectors}}) {
    Config config = frozen_config();
    change(config);
    const Trajectory serial = train(config, ProcessGroup::self(), 3);
    std::vector<ParallelConfig> meshes;
    for (int zero = 0; zero <= 3; ++zero) meshes.push_back({.zero = zero});
    meshes.push_back({.expert = world, .zero = 3});
    meshes.push_back({.tensor = 2, .expert = 2, .zero = 2, .sequence = true});
    meshes.push_back({.tensor = 2, .expert_tensor = 2, .zero = 1});
    meshes.push_back({.pipeline = 2, .schedule = zero_bubble});
    meshes.push_back({.pipeline = 2, .expert = 2, .zero = 3});
    for (std::size_t m = 0; m < meshes.size(); ++m) {
      const bool cut = (m + variant) % 2;  // each mesh is cut for one variant and whole for the next
      Config own = config;
      own.parallel = meshes[m];
      own.batch.micro = cut ? 1 : 0;
      if (cut) own.model.recompute = Recompute::full;
      if (!contradictions(own, world).empty()) continue;
      expect_same_run(train(own, test_world(), 3), serial, mesh_shape(meshes[m]).text(world) + (cut ? ", cut" : ""));
    }
    ++variant;
  }
}

/// Trained rows of a tensor that is divided among ranks, one of which has none of these rows. The run trains as the
/// serial one, and any mesh reads its checkpoint.
TEST(Frozen, TrainsRowsThatOneTensorRankHas) {
  Config config = tiny_config();
  config.optim.train_only = {"model/embed_tokens/weight[:3]", "model/layers/0/self_attn/q_proj/weight[:2]",
                             "model/layers/1/mlp/experts/4/up_proj/weight[:2]"};
  const Trajectory serial = train(config, ProcessGroup::self(), 4);
  const int world = world_size();
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tensor = world, .zero = 1}, ParallelConfig{.expert_tensor = world},
        ParallelConfig{.tensor = 2, .zero = 3, .sequence = true}}) {
    Config own = config;
    own.parallel = parallel;
    if (world > 2 || !contradictions(own, world).empty()) continue;
    const ProcessGroup all = test_world();
    const SharedDirectory directory(all);
    TinyTraining training(own, test_world());
    Trajectory run;
    run.steps = training.run(0, 2);
    save(training, directory.path(), 2);
    TinyTraining resumed(own, test_world());
    for (StepResult& step : resume(resumed, directory.path(), 2, 2)) run.steps.push_back(std::move(step));
    run.weights = resumed.weights();
    expect_same_run(run, serial, mesh_shape(parallel).text(world));
    TinyTraining alone(config, ProcessGroup::self());
    expect_same_steps(resume(alone, directory.path(), 2, 2), {serial.steps.begin() + 2, serial.steps.end()}, "alone");
  }
}

/// A run with frozen elements resumes with the same bits.
TEST(Frozen, ResumesWithTheSameBits) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Config config = frozen_config();
    config.parallel = {.expert = world_size(), .zero = 3};
    const ProcessGroup all = test_world();
    const SharedDirectory directory(all);
    TinyTraining whole(config, test_world(), type);
    whole.run(0, 2);
    save(whole, directory.path(), 2);
    const std::vector<StepResult> expected = whole.run(2, 2);
    TinyTraining parts(config, test_world(), type);
    const std::vector<StepResult> resumed = resume(parts, directory.path(), 2, 2);
    EXPECT_EQ(parts.weights(), whole.weights());
    for (std::size_t s = 0; s < expected.size(); ++s) EXPECT_EQ(resumed[s].loss, expected[s].loss);
  }
}

TEST(Frozen, LeavesMomentsOfACheckpointThatWasTrainedOtherwise) {
  Config config = tiny_config();
  const TemporaryDirectory directory;
  TinyTraining before(config, ProcessGroup::self());
  before.run(0, 2);
  save(before, directory.path(), 2);
  config.optim.train_only = {"model/layers/*/mlp/gate/weight[7:]", "model/layers/0/*"};
  TinyTraining after(config, ProcessGroup::self());
  after.load(CheckpointReader(resolve_checkpoint(directory.path())), 2);
  const auto start = by_name(after.weights());
  after.run(2, 2);
  for (const auto& [name, values] : by_name(after.weights())) {
    const bool gate = name.ends_with("mlp/gate/weight");
    if (!gate && name.find("model/layers/0/") != std::string::npos) continue;
    const auto still = static_cast<std::ptrdiff_t>(gate ? 7 * 24 : values.size());
    EXPECT_TRUE(std::equal(values.begin(), values.begin() + still, start.at(name).begin())) << name;
    EXPECT_EQ(gate, values != start.at(name)) << name;
  }
}

}  // namespace
}  // namespace lyceum
