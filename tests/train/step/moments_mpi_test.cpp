// States in bf16 (optim.moments) on every mesh, in checkpoints and in repeated steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>

#include "support/resumption.h"
#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

Config rounded_run(UpdateRuleName rule) {
  Config config = tiny_config();
  config.optim.rule = rule;
  config.optim.lr = rule == UpdateRuleName::muon ? 3e-3 : 1e-2;
  config.optim.beta2 = 0.999;
  config.optim.moments = MomentType::bf16;
  if (rule == UpdateRuleName::muon) config.optim.adamw_only = {"*/k_proj/weight"};
  return config;
}

struct MomentVariant {
  const char* name;
  std::function<void(Config&)> change;
};
const std::vector<MomentVariant>& moment_variants() {
  static const std::vector<MomentVariant> all{
      {"adamw", [](Config&) {}},
      {"muon", [](Config& c) { c.optim = rounded_run(UpdateRuleName::muon).optim; }},
      {"stacks and vectors",
       [](Config& c) {
         c.model.qkv_bias = true;
         c.model.qk_norm = QkNormKind::all;
         c.moe.shared_gate = true;
         c.model.tie_embeddings = true;
       }},
      {"some rows frozen, averaged", [](Config& c) {
         c.optim.ema = 0.8;
         c.optim.train_only = {"model/layers/*/mlp/gate/weight[4:]", "model/layers/1/*", "model/embed_tokens/weight"};
       }}};
  return all;
}

std::vector<ParallelConfig> rounded_meshes(int world) {
  std::vector<ParallelConfig> all;
  for (int zero = 0; zero <= 3; ++zero) all.push_back({.zero = zero});
  all.push_back({.tensor = 2, .zero = 1, .sequence = true});
  all.push_back({.expert = 2, .zero = 2});
  all.push_back({.expert_tensor = 2, .zero = 3});
  all.push_back({.expert = world, .zero = 1});
  all.push_back({.tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 2});
  all.push_back({.pipeline = 2, .expert = 2, .zero = 3});
  all.push_back({.pipeline = 2, .tensor = 2, .zero = 1});
  return all;
}

TEST(RoundedMoments, AreTheSameOnEveryMesh) {
  const int world = world_size();
  for (const auto& [name, change] : moment_variants()) {
    Config config = rounded_run(UpdateRuleName::adamw);
    change(config);
    const Trajectory serial = train(config, ProcessGroup::self(), 3);
    for (const ParallelConfig& parallel : rounded_meshes(world)) {
      Config own = config;
      own.parallel = parallel;
      if (!contradictions(own, world).empty() || half_has_same_axes(parallel, world)) continue;
      const std::string what =
          mesh_shape(parallel).text(world) + " zero " + std::to_string(parallel.zero) + ", " + name;
      const Trajectory run = train(own, test_world(), 3);
      expect_same_steps(run.steps, serial.steps, what);
      expect_same_rounding(run, serial, 0.98, what);
    }
  }
}

/// Returns all tensors of the newest checkpoint in a directory.
std::map<std::string, std::vector<float>> tensors_of(const std::filesystem::path& directory) {
  const CheckpointReader reader(resolve_checkpoint(directory));
  std::map<std::string, std::vector<float>> all;
  for (const CheckpointReader::Entry& entry : reader.tensors()) {
    std::vector<float>& values = all[entry.name];
    values.resize(static_cast<std::size_t>(entry.shape.size()));
    reader.read(entry.name, Box::whole(entry.shape), values.data());
  }
  return all;
}

/// All stages sum the gradients of one micro-batch in the same order, so all bits are equal.
TEST(RoundedMoments, HaveTheSameBitsInEveryZeroStage) {
  const ProcessGroup all = test_world();
  std::map<std::string, std::vector<float>> first;
  for (int zero = 0; zero <= 3; ++zero) {
    const SharedDirectory directory(all);
    Config config = rounded_run(UpdateRuleName::adamw);
    config.parallel = {.zero = zero};
    TinyTraining training(config, test_world());
    training.run(0, 4);
    save(training, directory.path(), 4);
    all.barrier();
    if (zero == 0) first = tensors_of(directory.path());
    EXPECT_TRUE(tensors_of(directory.path()) == first) << "stage " << zero;
    all.barrier();
  }
}

TEST(RoundedMoments, ResumeWithTheSameBitsAndOnAnotherMesh) {
  const int world = world_size();
  for (const UpdateRuleName rule : {UpdateRuleName::adamw, UpdateRuleName::muon}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      Config config = rounded_run(rule);
      config.parallel = {.expert = world, .zero = 3};
      Resumption run(config, type);
      // A rollback repeats the steps with the same numbers.
      run.parts.settle();
      resume(run.parts, run.directory.path(), 2, 2);
      EXPECT_EQ(run.parts.weights(), run.whole.weights()) << "after a rollback";
      if (type != DType::f32) continue;
      Config other = config;
      other.parallel = {.zero = 1};
      TinyTraining moved(other, test_world());
      expect_same_steps(resume(moved, run.directory.path(), 2, 2), run.expected, "another mesh");
    }
  }
}

bool is_state(const Trajectory::Slice& slice) {
  return is_optimizer_state(slice.name) && !slice.name.starts_with(average_prefix);
}

/// A run may change the type when it continues: it rounds states of f32 to nearest, and widens those of bf16.
TEST(RoundedMoments, ContinueFromF32AndBack) {
  const ProcessGroup all = test_world();
  const SharedDirectory directory(all);
  for (const UpdateRuleName rule : {UpdateRuleName::adamw, UpdateRuleName::muon}) {
    Config rounded = rounded_run(rule), exact = rounded;
    exact.optim.moments = MomentType::f32;
    rounded.parallel = exact.parallel = {.expert = world_size(), .zero = 1};
    TinyTraining before(exact, test_world());
    before.run(0, 2);
    save(before, directory.path(), 2);
    const auto type_of = [&](const std::string& name) {
      return CheckpointReader(resolve_checkpoint(directory.path())).find(name)->type;
    };
    EXPECT_EQ(type_of("optimizer/exp_avg/lm_head/weight"), DType::f32);
    TinyTraining between(rounded, test_world());
    between.load(CheckpointReader(resolve_checkpoint(directory.path())), 2);
    const auto old = before.weights(), taken = between.weights();
    ASSERT_EQ(old.size(), taken.size());
    for (std::size_t t = 0; t < old.size(); ++t) {
      std::vector<float> expected = old[t].values;
      if (is_state(old[t])) {
        for (float& x : expected) x = static_cast<float>(bfloat16(x));
      }
      EXPECT_EQ(taken[t].values, expected) << taken[t].name;
    }
    for (const StepResult& result : between.run(2, 2)) EXPECT_TRUE(std::isfinite(result.loss) && !result.skipped);
    save(between, directory.path(), 4);
    EXPECT_EQ(type_of("optimizer/exp_avg/lm_head/weight"), DType::bf16);
    EXPECT_EQ(type_of("lm_head/weight"), DType::f32);
    TinyTraining after(exact, test_world());
    after.load(CheckpointReader(resolve_checkpoint(directory.path())), 4);
    EXPECT_EQ(after.weights(), between.weights());
    for (const StepResult& result : after.run(4, 1)) EXPECT_TRUE(std::isfinite(result.loss) && !result.skipped);
    all.barrier();
  }
}

/// Every audited step reads the memory that the previous one left.
TEST(RoundedMoments, DamageIsFound) {
  for (const UpdateRuleName rule : {UpdateRuleName::adamw, UpdateRuleName::muon}) {
    Config config = rounded_run(rule);
    config.run.audit_every = 1;
    config.run.replay_every = 2;
    config.parallel = {.expert = world_size(), .zero = 1};
    TinyTraining training(config, test_world());
    training.run(0, 3);
    for (const UpdatedShare& share : training.optimizer().updated()) {
      for (const UpdatedShare::Part& part : share.parts) {
        if (part.range.count > 0) part.states[0].data<bfloat16>()[0].bits ^= 0x40u;
      }
    }
    try {
      training.run(3, 1);
      FAIL() << "the damage was not found";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("changed in memory between two updates"), std::string::npos);
    }
  }
}

/// The losses differ from those of a run with states in f32, but little.
TEST(RoundedMoments, TrainLikeThoseInF32) {
  for (const UpdateRuleName rule : {UpdateRuleName::adamw, UpdateRuleName::muon}) {
    Config rounded = rounded_run(rule), exact = rounded;
    exact.optim.moments = MomentType::f32;
    rounded.parallel = exact.parallel = {.zero = 2};
    const std::vector<StepResult> a = train(rounded, test_world(), 20).steps, b = train(exact, test_world(), 20).steps;
    bool differs = false;
    for (std::size_t s = 0; s < a.size(); ++s) {
      expect_close(a[s].loss, b[s].loss, 0.02, "loss of step " + std::to_string(s));
      differs = differs || a[s].loss != b[s].loss;
    }
    EXPECT_TRUE(differs);
  }
}

}  // namespace
}  // namespace lyceum
