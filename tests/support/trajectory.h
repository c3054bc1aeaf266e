#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "model/routing/routing_sums.h"
#include "optim/checkpoint.h"
#include "plan/mesh_rank.h"
#include "support/checkpoint_values.h"
#include "support/tiny_run.h"
#include "train/step/live_placement.h"
#include "train/step/step.h"

namespace lyceum {

/// The results of a short training run, and the weights and moments that this rank owned at its end.
struct Trajectory {
  struct Slice {
    std::string name;  // name of the logical tensor: a weight or one of its moments
    Shape shape;       // shape of the whole logical tensor
    Box box;
    std::vector<float> values;
    bool operator==(const Slice&) const = default;
  };
  std::vector<StepResult> steps;
  std::vector<Slice> weights;
};

/// A model with its optimizer on the mesh of `config.parallel`, initialised from run.seed, and data to train it. The
/// constructor resolves the configuration and throws a usage Error if it does not fit the world. Construction, run()
/// and load() are collective.
class TinyTraining {
 public:
  TinyTraining(const Config& config, ProcessGroup world, DType type = DType::f32, const Stream& stream = fresh_stream())
      : config_(resolved(config, world.size())),
        setup_(make_setup(std::move(world), mesh_shape(config.parallel), stream)),
        data_(config_),
        model_(config_, setup_->stream, setup_->mesh, type, true),
        zero_(model_.units(), setup_->mesh, setup_->stream,
              {.stage = config_.parallel.zero,
               .micro_batches = micro_batches(config_, setup_->mesh.world.size()),
               .type = type}),
        optimizer_(config_.optim, setup_->mesh, setup_->stream, zero_.shares(),
                   {.watched = config_.run.audit_every > 0, .seed = config_.run.seed}),
        step_(config_, *setup_, model_, zero_, optimizer_) {
    zero_.initialize(config_.run.seed);
    optimizer_.adopt_weights();
  }

  /// Runs steps [first, first + count) and returns their results, with `routing` and `replica_sums` summed over all
  /// ranks.
  std::vector<StepResult> run(int first, int count, const StepLimits& limits = {}) {
    std::vector<StepResult> results = run_steps_only(first, count, limits);
    for (StepResult& result : results) {
      result.routing = sum_routing_over_ranks(config_, setup_->mesh, result.routing);
      if (config_.parallel.replicas == 0) continue;
      result.replica_sums = sum_replica_counts_over_ranks(config_, setup_->mesh, result.replica_sums);
    }
    return results;
  }
  /// Runs steps as run() does, without the sums over ranks, which a step does not need.
  std::vector<StepResult> run_steps_only(int first, int count, const StepLimits& limits = {}) {
    const TokenLoader loader = data_.loader(config_);
    std::vector<StepResult> results;
    for (int s = first; s < first + count; ++s) {
      results.push_back(step_.run(loader, s, s * config_.batch.global, config_.optim.lr, limits));
    }
    return results;
  }
  /// Returns this rank's slices of weights and moments, as a checkpoint would contain them. Together, the slices of all
  /// ranks cover the model once.
  std::vector<Trajectory::Slice> weights() const {
    std::vector<Trajectory::Slice> all;
    for (const CheckpointSlice& slice : checkpoint_slices(optimizer_)) {
      all.push_back({slice.name, slice.shape, slice.box, checkpoint_values(slice)});
    }
    return all;
  }
  void load(const CheckpointReader& reader, std::int64_t updates) {
    load_checkpoint(optimizer_, reader);
    zero_.values_changed();
    optimizer_.set_updates(updates);
  }
  /// Makes the optimizer continue from the current weights of the model.
  void adopt() { optimizer_.adopt_weights(); }
  const Optimizer& optimizer() const { return optimizer_; }
  /// Returns an object that moves experts of this model. Collective.
  std::unique_ptr<LivePlacement> live_placement() {
    return std::make_unique<LivePlacement>(config_, *setup_, model_, zero_, optimizer_);
  }
  StagedModel& model() { return model_; }
  const Config& config() const { return config_; }
  TokenLoader loader() const { return data_.loader(config_); }
  /// Waits until the units contain the weights of the last step. With ZeRO 3 they never do.
  void settle() { zero_.await_values(); }
  const RunSetup& setup() const { return *setup_; }
  const Zero& zero() const { return zero_; }
  const TrainStep& step() const { return step_; }

 private:
  static Config resolved(Config config, int ranks) {
    resolve(config, ranks);
    require_none(problems(config, ranks));
    return config;
  }

  Config config_;
  std::unique_ptr<RunSetup> setup_;
  TinyData data_;
  StagedModel model_;
  Zero zero_;
  Optimizer optimizer_;
  TrainStep step_;
};

inline Trajectory train(const Config& config, ProcessGroup world, int steps, DType type = DType::f32,
                        const Stream& stream = fresh_stream()) {
  TinyTraining training(config, std::move(world), type, stream);
  Trajectory result;
  result.steps = training.run(0, steps);
  result.weights = training.weights();
  return result;
}

/// Returns the values of slices by name.
inline std::map<std::string, std::vector<float>> by_name(const std::vector<Trajectory::Slice>& slices) {
  std::map<std::string, std::vector<float>> all;
  for (const Trajectory::Slice& slice : slices) all[slice.name] = slice.values;
  return all;
}

/// Writes a checkpoint of `training`.
inline void save(const TinyTraining& training, const std::filesystem::path& root, int step) {
  const CheckpointHeader header{.run_uuid = "u", .step = step, .mesh = "m", .config = "", .trainer_state = "{}"};
  write_checkpoint(training.setup().mesh.world, root, header, checkpoint_slices(training.optimizer()));
}
inline std::vector<StepResult> resume(TinyTraining& training, const std::filesystem::path& root, int first, int count) {
  training.load(CheckpointReader(resolve_checkpoint(root)), first);
  return training.run(first, count);
}

inline void expect_close(double value, double expected, double tolerance, const std::string& what) {
  EXPECT_TRUE(std::abs(value - expected) <= tolerance * std::abs(expected))
      << what << ": " << value << " for " << expected;
}

/// Expects the same number of choices, of which at most `moved` went to another expert.
inline void expect_same_choices(std::span<const std::int64_t> counts, std::span<const std::int64_t> expected,
                                std::int64_t moved, const std::string& where) {
  ASSERT_EQ(counts.size(), expected.size()) << where;
  std::int64_t more = 0, fewer = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    more += std::max<std::int64_t>(counts[i] - expected[i], 0);
    fewer += std::max<std::int64_t>(expected[i] - counts[i], 0);
  }
  EXPECT_EQ(more, fewer) << where;
  EXPECT_LE(more, moved) << where;
}

/// `moved`: choices of a layer in a step that may go to another expert, for scores that differ in rounding only.
inline void expect_same_steps(const std::vector<StepResult>& run, const std::vector<StepResult>& serial,
                              const std::string& name, std::int64_t moved = 0) {
  ASSERT_EQ(run.size(), serial.size());
  for (std::size_t s = 0; s < serial.size(); ++s) {
    const StepResult &a = run[s], &b = serial[s];
    const std::string where = name + " step " + std::to_string(s);
    expect_close(a.loss, b.loss, 1e-5, where + " loss");
    ASSERT_EQ(a.losses.size(), b.losses.size()) << where;
    for (std::size_t l = 0; l < b.losses.size(); ++l) {
      EXPECT_EQ(a.losses[l].kind, b.losses[l].kind) << where;
      expect_close(a.losses[l].value, b.losses[l].value, 1e-4, where + " " + name_of(b.losses[l].kind));
    }
    expect_close(a.grad_norm, b.grad_norm, 1e-4, where + " gradient norm");
    expect_close(a.weight_norm, b.weight_norm, 1e-5, where + " weight norm");
    expect_close(a.update_norm, b.update_norm, 1e-3, where + " update norm");
    ASSERT_EQ(a.routing.size(), b.routing.size());
    for (std::size_t layer = 0; layer < b.routing.size(); ++layer) {
      if (moved == 0) {
        EXPECT_EQ(a.routing[layer].counts, b.routing[layer].counts) << where << " layer " << layer;
      } else {
        expect_same_choices(a.routing[layer].counts, b.routing[layer].counts, moved, where);
      }
      EXPECT_EQ(a.routing[layer].dropped, b.routing[layer].dropped) << where << " layer " << layer;
    }
  }
}

/// Returns the elements of `box` from a slice that contains the whole tensor, in row-major order.
inline std::vector<float> values_in_box(const Trajectory::Slice& whole, const Box& box) {
  std::vector<float> part;
  for (std::int64_t i = 0; i < box.extent.size(); ++i) {
    std::int64_t rest = i, flat = 0, stride = 1;
    for (int axis = whole.shape.rank() - 1; axis >= 0; --axis) {
      flat += (box.offset[axis] + rest % box.extent[axis]) * stride;
      rest /= box.extent[axis];
      stride *= whole.shape[axis];
    }
    part.push_back(whole.values[static_cast<std::size_t>(flat)]);
  }
  return part;
}

/// Expects every step to route tokens exactly as in the serial run, except `moved` choices of a layer (see
/// expect_same_steps()), and to have equal losses and norms up to rounding.
/// Expects the weights and moments of this rank to equal those of the serial run: the norm of the difference of a slice
/// may be 0.1 % of the norm of its values, or `moments` of it for a slice of moments. `serial`: a run of one rank,
/// whose slices are whole tensors. `name`: begins failure messages.
inline void expect_same_run(const Trajectory& run, const Trajectory& serial, const std::string& name,
                            double moments = 1e-3, std::int64_t moved = 0) {
  expect_same_steps(run.steps, serial.steps, name, moved);
  std::map<std::string, const Trajectory::Slice*> whole;
  for (const Trajectory::Slice& slice : serial.weights) whole[slice.name] = &slice;
  for (const Trajectory::Slice& slice : run.weights) {
    ASSERT_TRUE(whole.contains(slice.name)) << slice.name;
    ASSERT_EQ(slice.shape, whole.at(slice.name)->shape) << slice.name;
    const std::vector<float> expected = values_in_box(*whole.at(slice.name), slice.box);
    ASSERT_EQ(slice.values.size(), expected.size()) << slice.name;
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      difference += std::pow(static_cast<double>(slice.values[i]) - expected[i], 2);
      size += std::pow(static_cast<double>(expected[i]), 2);
    }
    const double tolerance = slice.name.starts_with("optimizer/") ? moments : 1e-3;
    EXPECT_TRUE(std::sqrt(difference) <= tolerance * std::sqrt(size) + 1e-7)
        << name << " " << slice.name << ": " << std::sqrt(difference / size);
  }
}

/// Expects at least `share` of the states of this rank to have the bits of a serial run. Sums of gradients may differ
/// in their last bits, which seldom changes how a state is rounded; other random numbers would change about half.
inline void expect_same_rounding(const Trajectory& run, const Trajectory& serial, double share,
                                 const std::string& name) {
  std::map<std::string, const Trajectory::Slice*> whole;
  for (const Trajectory::Slice& slice : serial.weights) whole[slice.name] = &slice;
  std::int64_t equal = 0, states = 0;
  for (const Trajectory::Slice& slice : run.weights) {
    if (!is_optimizer_state(slice.name) || slice.name.starts_with(average_prefix)) continue;
    const std::vector<float> expected = values_in_box(*whole.at(slice.name), slice.box);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == 0) continue;  // frozen
      ++states;
      equal += slice.values[i] == expected[i];
    }
  }
  EXPECT_GE(static_cast<double>(equal), share * static_cast<double>(states)) << name << ": " << states << " states";
}

}  // namespace lyceum
