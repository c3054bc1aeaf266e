#include <gtest/gtest.h>

#include <map>

#include "config/optim.h"
#include "io/checkpoint/unit_tensors.h"
#include "support/planned_peaks.h"
#include "support/resumption.h"
#include "support/shared_directory.h"
#include "support/temporary_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"
#include "train/eval/evaluator.h"

namespace lyceum {
namespace {

/// Adapters of some matrices of every unit: a part of the stack of q, k and v, a router, shared experts, experts of
/// several widths (all but the one of width 1), and the head.
Config adapted_config() {
  Config config = tiny_config();
  config.optim.lora_rank = 2;
  config.optim.lora_alpha = 5;
  config.optim.lora_targets = {"model/layers/*/self_attn/[qo]_proj/weight", "model/layers/*/mlp/gate/weight",
                               "model/layers/*/mlp/shared_experts/*", "model/layers/*/mlp/experts/[0-24-8]/*",
                               "lm_head/weight"};
  return config;
}

using Values = std::map<std::string, std::vector<float>>;

/// Frozen weights keep their bits and have no moments. A and B change.
TEST(AdaptersOfAModel, AreAllThatTrains) {
  for (const DType type : {DType::f32, DType::bf16}) {
    TinyTraining training(adapted_config(), ProcessGroup::self(), type);
    const Values before = by_name(training.weights());
    training.run(0, 3);
    const Values after = by_name(training.weights());
    ASSERT_EQ(after.size(), before.size());
    int adapters = 0;
    for (const auto& [name, values] : after) {
      const bool of_adapter = name.find("adapters/") != std::string::npos;
      adapters += is_adapter(name);
      EXPECT_EQ(values != before.at(name), of_adapter) << name;
      EXPECT_TRUE(of_adapter || !is_optimizer_state(name)) << name;
      if (!name.starts_with(adapter_b_prefix)) continue;
      EXPECT_EQ(before.at(name), std::vector<float>(values.size())) << name;
    }
    EXPECT_EQ(adapters, 2 * (3 * 2 + 2 + 2 * 3 + 2 * 8 * 3 + 1));
  }
}

/// A is uniform in ±1/√n.
TEST(AdaptersOfAModel, BeginAsInPeft) {
  const TinyTraining training(adapted_config(), ProcessGroup::self());
  const std::vector<float> a = by_name(training.weights()).at("adapters/lora_A/lm_head/weight");
  const auto [low, high] = std::ranges::minmax_element(a);
  const double bound = 1 / std::sqrt(24.0);
  EXPECT_TRUE(*low >= -bound && *low < -0.8 * bound) << *low;
  EXPECT_TRUE(*high <= bound && *high > 0.8 * bound) << *high;
}

/// At first, the model is the one without adapters, and the gradients of B are scale · dW · Aᵀ.
TEST(AdaptersOfAModel, LeaveTheFirstStepUnchanged) {
  Config config = adapted_config();
  config.optim.clip_norm = 0;
  TinyTraining training(config, ProcessGroup::self());
  const Values weights = by_name(training.weights());
  const StepResult own = training.run(0, 1).front();
  remove_adapters(config.optim);
  TinyTraining whole(config, ProcessGroup::self());
  const StepResult other = whole.run(0, 1).front();
  EXPECT_EQ(own.loss, other.loss);
  double squares = 0;
  const double scale = 5.0 / 2;
  for (const ParameterUnit* unit : whole.model().units()) {
    for (const auto& parameter : unit->parameters()) {
      for (const ParameterSlice& slice : parameter->slices) {
        const auto a = weights.find(std::string(adapter_a_prefix) + slice.name);
        if (a == weights.end()) continue;
        const float* dw = parameter->gradient.data<float>() + slice.first;
        for (std::int64_t i = 0; i < slice.extent[0]; ++i) {
          for (std::int64_t k = 0; k < 2; ++k) {
            double sum = 0;
            for (std::int64_t j = 0; j < slice.extent[1]; ++j) {
              sum += scale * dw[i * slice.in_memory()[1] + j] *
                     a->second[static_cast<std::size_t>(k * slice.extent[1] + j)];
            }
            squares += sum * sum;
          }
        }
      }
    }
  }
  EXPECT_GT(squares, 0);
  expect_close(own.grad_norm, std::sqrt(squares), 1e-5, "gradient norm");
}

/// Runs on meshes of every axis and with every ZeRO stage equal the serial run.
TEST(AdaptersOfAModel, TrainTheSameOnEveryMesh) {
  const int world = world_size();
  using enum ScheduleKind;
  const auto modules = [](Config& config) {
    config.mtp = {.depth = 1};
    config.optim.lora_targets = {"*_proj/weight"};
    config.moe.expert_sizes = {5, 11, 7, 4, 16, 9, 33, 2, 8};
  };
  const auto tied = [](Config& config) {
    config.model.tie_embeddings = true;
    config.optim.lora_targets = {"model/embed_tokens/weight", "model/layers/*/mlp/down_proj/weight"};
  };
  std::size_t variant = 0;
  for (const auto& change : {std::function<void(Config&)>([](Config&) {}), {modules}, {tied}}) {
    Config config = adapted_config();
    change(config);
    const Trajectory serial = train(config, ProcessGroup::self(), 4);
    std::vector<ParallelConfig> meshes;
    for (int zero = 0; zero <= 3; ++zero) meshes.push_back({.zero = zero});
    meshes.push_back({.expert = world, .zero = 3});
    for (const int zero : {0, 1, 2, 3}) {
      meshes.push_back({.tensor = 2, .expert = 2, .zero = zero, .sequence = zero > 1});
      meshes.push_back({.tensor = 2, .expert_tensor = 2, .zero = zero});
      meshes.push_back({.expert = 2, .expert_tensor = 2, .zero = zero});
    }
    meshes.push_back({.pipeline = 2, .schedule = zero_bubble});
    meshes.push_back({.pipeline = 2, .zero = 3, .schedule = zero_bubble});
    meshes.push_back({.pipeline = 2, .expert = 2, .zero = 3});
    meshes.push_back({.pipeline = 2, .tensor = 2, .expert_tensor = 2, .zero = 1});
    for (std::size_t m = 0; m < meshes.size(); ++m) {
      const ParallelConfig& parallel = meshes[m];
      if (config.model.tie_embeddings && parallel.pipeline > 1) continue;
      const bool cut = (m + variant) % 2;  // each mesh is cut for one variant and whole for the next
      Config own = config;
      own.parallel = parallel;
      own.batch.micro = cut ? 1 : 0;
      if (cut) own.model.recompute = Recompute::full;
      if (!contradictions(own, world).empty() || half_has_same_axes(parallel, world)) continue;
      expect_same_run(train(own, test_world(), 4), serial, mesh_shape(parallel).text(world) + (cut ? ", cut" : ""));
    }
    ++variant;
  }
}

/// A run resumes with the same bits, and on another mesh with the same losses.
TEST(AdaptersOfAModel, Resume) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Config config = adapted_config();
    const Config serial = config;
    config.parallel = {.expert = world_size(), .zero = 3};
    const Resumption run(config, type);
    if (type == DType::bf16) continue;
    TinyTraining alone(serial, ProcessGroup::self());
    expect_same_steps(resume(alone, run.directory.path(), 2, 2), run.expected, "alone");
  }
}

/// The weights of a checkpoint with merged adapters give the loss of the adapted model.
TEST(AdaptersOfAModel, AreMergedByAReader) {
  for (const auto& [type, tolerance] : {std::pair(DType::f32, 1e-6), {DType::bf16, 2e-3}}) {
    Config config = adapted_config();
    const TemporaryDirectory directory;
    TinyTraining training(config, ProcessGroup::self(), type);
    training.run(0, 4);
    save(training, directory.path(), 4);
    CheckpointReader reader(resolve_checkpoint(directory.path()));
    EXPECT_TRUE(reader.has_adapters());
    const auto loss_of = [&] {
      remove_adapters(config.optim);
      TinyTraining plain(config, ProcessGroup::self(), type);
      load_weights(reader, plain.setup().stream, plain.model().units());
      plain.adopt();
      return plain.run(4, 1).front().loss;
    };
    const double unadapted = loss_of();
    reader.merge_adapters(5.0 / 2);
    const double adapted = training.run(4, 1).front().loss;
    expect_close(loss_of(), adapted, tolerance, "loss");
    EXPECT_GT(std::abs(unadapted - adapted), 10 * tolerance);
    // A box of a merged matrix equals that part of the whole one.
    const std::string name = "model/layers/1/mlp/experts/2/down_proj/weight";
    EXPECT_EQ(reader.find("adapters/lora_A/" + name), nullptr);
    const Shape shape = reader.find(name)->shape;
    std::vector<float> all(static_cast<std::size_t>(shape.size())), part(6);
    reader.read(name, Box::whole(shape), all.data());
    reader.read(name, {.offset = {3, 4}, .extent = {3, 2}}, part.data());
    for (std::size_t i = 0; i < part.size(); ++i) {
      EXPECT_EQ(part[i], all[(3 + i / 2) * static_cast<std::size_t>(shape[1]) + 4 + i % 2]);
    }
  }
}

/// Validation between steps uses the adapted weights, and does not disturb training.
TEST(AdaptersOfAModel, AreSeenByValidation) {
  Config config = adapted_config();
  config.parallel.zero = 3;
  TinyTraining training(config, test_world()), undisturbed(config, test_world());
  const auto validate = [&] {
    return evaluate(training.model(), training.setup(), training.config(), training.loader(), 1).loss;
  };
  const double first = validate();
  training.run(0, 3);
  const double later = validate();
  EXPECT_LT(later, first);
  undisturbed.run(0, 3);
  EXPECT_EQ(training.run(3, 1).front().loss, undisturbed.run(3, 1).front().loss);
}

/// The plan has the memory of a step: no moments and no lasting gradients of frozen weights, and the temporary values
/// and gradients of one layer.
TEST(AdaptersOfAModel, NeedThePlannedMemory) {
  const int world = world_size(), rank = test_world().rank();
  for (const int zero : {0, 1, 2, 3}) {
    for (ParallelConfig parallel : {ParallelConfig{}, ParallelConfig{.expert = 2}, ParallelConfig{.tensor = 2}}) {
      Config config = sizable_config(4, 64, 4);
      config.optim.lora_rank = 4;
      config.optim.lora_targets = {"model/layers/*"};
      config.run.audit_every = 0;
      config.batch.micro = 1;
      parallel.zero = zero;
      config.parallel = parallel;
      if (!contradictions(config, world).empty()) continue;
      TinyTraining training(config, test_world());
      const MemoryUse before = memory_of(training.setup().stream).use();
      memory_of(training.setup().stream).reset_peaks();
      const MemoryUse use = training.run(0, 1).back().memory;
      resolve(config, world);
      const RankMemory planned = plan_rank(plan_input(config, world), rank).memory;
      const auto peak = [&](MemoryKind kind) { return static_cast<double>(use.peak[static_cast<std::size_t>(kind)]); };
      const std::string what = mesh_shape(parallel).text(world) + " zero " + std::to_string(zero);
      EXPECT_EQ(planned.optimizer, peak(MemoryKind::optimizer)) << what;
      // Units of one layer need not have their gradients at the same time.
      EXPECT_GE(planned.gradients, peak(MemoryKind::gradients)) << what;
      EXPECT_LE(planned.gradients, 1.5 * peak(MemoryKind::gradients)) << what;
      if (zero < 3) {
        EXPECT_EQ(planned.weights, peak(MemoryKind::weights)) << what;
      } else {
        expect_close(planned.weights, peak(MemoryKind::weights), 0.1, what + ": weights");
      }
      EXPECT_EQ(planned.buffers, static_cast<double>(before.in_use[static_cast<std::size_t>(MemoryKind::buffers)]))
          << what;
      expect_close(planned.activations, peak(MemoryKind::activations), 0.1, what + ": activations");
      remove_adapters(config.optim);
      const RankMemory full = plan_rank(plan_input(config, world), rank).memory;
      // Adapters of 4 are few rows, of which a rank has more than its part where several tensors share its units.
      EXPECT_LT(3 * planned.optimizer, full.optimizer) << what;
      EXPECT_LT(planned.gradients, full.gradients) << what;
    }
  }
}

}  // namespace
}  // namespace lyceum
