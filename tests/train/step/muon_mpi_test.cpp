#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "support/resumption.h"
#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

Config muon_run() {
  Config config = tiny_config();
  config.optim.rule = UpdateRuleName::muon;
  config.optim.momentum = 0.9;
  config.optim.weight_decay = 0.3;
  config.optim.lr = 3e-3;
  return config;
}

struct MuonVariant {
  const char* name;
  std::function<void(Config&)> change;
};
const std::vector<MuonVariant>& muon_variants() {
  static const std::vector<MuonVariant> all{
      {"base", [](Config&) {}},
      {"biases, k by AdamW",  // a stack of matrices with two rules, and vectors in the same unit
       [](Config& c) {
         c.model.qkv_bias = true;
         c.model.qk_norm = QkNormKind::all;
         c.moe.shared_gate = true;
         c.optim.adamw_only = {"*/k_proj/weight", "model/layers/1/mlp/gate/weight", "*/experts/[37]/up_proj/weight"};
       }},
      {"attention experts",
       [](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 3, .top_k = 2, .gates = {}};
       }},
      {"some rows frozen", [](Config& c) {
         c.optim.train_only = {"model/layers/*/mlp/gate/weight[4:]", "model/layers/1/*", "model/embed_tokens/weight"};
       }}};
  return all;
}

std::vector<ParallelConfig> muon_meshes(int world) {
  using enum ScheduleKind;
  std::vector<ParallelConfig> all;
  for (int zero = 0; zero <= 3; ++zero) {
    all.push_back({.zero = zero});
    all.push_back({.tensor = 2, .zero = zero, .sequence = zero % 2 == 1});
    all.push_back({.expert = 2, .zero = zero});
    all.push_back({.expert_tensor = 2, .zero = zero});
  }
  all.push_back({.expert = world, .zero = 1});
  all.push_back({.tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 2});
  all.push_back({.pipeline = 2, .schedule = zero_bubble});
  all.push_back({.pipeline = 2, .expert = 2, .zero = 3});
  all.push_back({.pipeline = 2, .tensor = 2, .zero = 1, .sequence = true});
  return all;
}

TEST(Muon, TrainsTheSameOnEveryMesh) {
  const int world = world_size();
  for (const auto& [name, change] : muon_variants()) {
    Config config = muon_run();
    change(config);
    const Trajectory serial = train(config, ProcessGroup::self(), 3);
    for (const ParallelConfig& parallel : muon_meshes(world)) {
      Config own = config;
      own.parallel = parallel;
      if (!contradictions(own, world).empty() || half_has_same_axes(parallel, world)) continue;
      expect_same_run(train(own, test_world(), 3), serial,
                      mesh_shape(parallel).text(world) + " zero " + std::to_string(parallel.zero) + ", " + name);
    }
  }
}

TEST(Muon, ResumesWithTheSameBitsAndOnAnotherMesh) {
  const int world = world_size();
  for (const DType type : {DType::f32, DType::bf16}) {
    Config config = muon_run();
    config.optim.adamw_only = {"*/k_proj/weight"};
    config.parallel = {.expert = world, .zero = 3};
    const Resumption run(config, type);
    if (type != DType::f32) continue;
    Config other = config;
    other.parallel = {.zero = 1};
    TinyTraining moved(other, test_world());
    expect_same_steps(resume(moved, run.directory.path(), 2, 2), run.expected, "another mesh");
  }
}

std::map<std::string, std::vector<float>> values_by_name(const std::vector<Trajectory::Slice>& slices) {
  std::map<std::string, std::vector<float>> all;
  for (const Trajectory::Slice& slice : slices) {
    all[slice.name].insert(all[slice.name].end(), slice.values.begin(), slice.values.end());
  }
  return all;
}
bool all_zero(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float value) { return value == 0; });
}

/// States that the checkpoint lacks begin at zero, all other states and the weights are those of the checkpoint.
TEST(Muon, ContinuesFromAdamWAndBack) {
  const ProcessGroup all = test_world();
  const SharedDirectory directory(all);
  Config adamw = tiny_config(), muon = muon_run();
  adamw.parallel = muon.parallel = {.expert = world_size(), .zero = 1};
  const auto expect_taken_over = [&](const Config& from, const Config& to, int step) {
    TinyTraining before(from, test_world());
    if (step > 0) before.load(CheckpointReader(resolve_checkpoint(directory.path())), step);
    before.run(step, 2);
    save(before, directory.path(), step + 2);
    const auto old = values_by_name(before.weights());
    TinyTraining after(to, test_world());
    const CheckpointReader reader(resolve_checkpoint(directory.path()));
    after.load(reader, step + 2);
    std::int64_t new_states = 0;
    for (const auto& [name, values] : values_by_name(after.weights())) {
      if (old.contains(name)) {
        EXPECT_EQ(values, old.at(name)) << name;
      } else {
        EXPECT_TRUE(is_optimizer_state(name) && all_zero(values)) << name;
        ++new_states;
      }
    }
    EXPECT_GT(new_states, 0);
    for (const StepResult& result : after.run(step + 2, 1)) EXPECT_TRUE(std::isfinite(result.loss) && !result.skipped);
    return states_of_other_rules(after.config(), reader);
  };
  const auto missing = expect_taken_over(adamw, muon, 0);
  // 3 · 4 matrices of attention, 3 of the dense FFN; in each sparse block a router, 3 of shared and 27 of routed
  // experts
  EXPECT_EQ(missing, (std::map<std::string, std::int64_t>{{"momentum", 12 + 3 + 2 * 31}}));
  TinyTraining trained(muon, test_world());
  trained.load(CheckpointReader(resolve_checkpoint(directory.path())), 2);
  trained.run(2, 2);
  save(trained, directory.path(), 4);
  const auto back = expect_taken_over(muon, adamw, 4);
  EXPECT_EQ(back, (std::map<std::string, std::int64_t>{{"exp_avg", 77}, {"exp_avg_sq", 77}}));
  EXPECT_TRUE(states_of_other_rules(trained.config(), CheckpointReader(resolve_checkpoint(directory.path()))).empty());
}

/// Only the states of another rule make up for a missing one: a checkpoint with half of a rule's states is refused.
TEST(Muon, RefusesACheckpointWithSomeStatesOfARule) {
  const ProcessGroup all = test_world();
  const SharedDirectory directory(all);
  Config config = tiny_config();
  config.parallel = {.expert = world_size(), .zero = 1};
  TinyTraining training(config, test_world());
  training.run(0, 1);
  std::vector<CheckpointSlice> slices = checkpoint_slices(training.optimizer());
  std::erase_if(slices, [](const CheckpointSlice& slice) {
    return slice.name.starts_with("optimizer/exp_avg_sq/model/layers/");
  });
  const CheckpointHeader header{.run_uuid = "u", .step = 1, .mesh = "m", .config = "", .trainer_state = "{}"};
  write_checkpoint(training.setup().mesh.world, directory.path(), header, slices);
  TinyTraining after(config, test_world());
  const CheckpointReader reader(resolve_checkpoint(directory.path()));
  try {
    after.load(reader, 1);
    FAIL() << "it was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_NE(std::string(error.what()).find("no tensor optimizer/exp_avg_sq/model/layers/"), std::string::npos);
  }
}

TEST(Muon, ASkippedStepChangesNothing) {
  Config config = muon_run();
  config.run.audit_every = 0;  // the test changes a weight
  config.parallel = {.expert = world_size(), .zero = 1};
  TinyTraining training(config, test_world());
  training.run(0, 1);
  const auto before = training.weights();
  const Optimizer& optimizer = training.optimizer();
  const UnitShare& spoiled = optimizer.shares().front();
  training.settle();
  const float kept = spoiled.values.data<float>()[0];
  spoiled.values.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(training.run(1, 1).front().skipped);
  spoiled.values.data<float>()[0] = kept;
  EXPECT_EQ(training.weights(), before);
}

/// Every audited step reads the memory that the previous one left.
TEST(Muon, FindsDamageOfTheMomentum) {
  Config config = muon_run();
  config.run.audit_every = 1;
  config.run.replay_every = 2;
  config.parallel = {.expert = world_size(), .zero = 1};
  TinyTraining training(config, test_world());
  training.run(0, 3);
  for (const UpdatedShare& share : training.optimizer().updated()) {
    for (const UpdatedShare::Part& part : share.parts) {
      if (part.rule == WeightRule::muon && part.range.count > 0) part.states[0].data<float>()[0] += 1;
    }
  }
  try {
    training.run(3, 1);
    FAIL() << "the damage was not found";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("changed in memory between two updates"), std::string::npos);
  }
}

/// A model in bf16 has about the losses of f32, and updates of about the same size.
TEST(Muon, TrainsInBf16) {
  Config config = muon_run();
  config.parallel = {.zero = 2};
  const std::vector<StepResult> f32 = train(config, test_world(), 3).steps;
  const std::vector<StepResult> bf16 = train(config, test_world(), 3, DType::bf16).steps;
  for (std::size_t s = 0; s < f32.size(); ++s) {
    expect_close(bf16[s].loss, f32[s].loss, 0.02, "loss");
    expect_close(bf16[s].update_norm, f32[s].update_norm, 0.05, "update norm");
  }
}

}  // namespace
}  // namespace lyceum
