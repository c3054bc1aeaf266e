#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/transformer.h"
#include "parallel/pipeline/tape_stage.h"
#include "support/tiny_run.h"

namespace lyceum {

/// Returns the random tokens of micro-batch `microbatch`, equal on every rank.
inline TokenBatch random_batch(const Stream& stream, const Config& config, int microbatch) {
  const std::int64_t tokens = config.batch.micro * config.batch.seq_len;
  const Philox random(3, "tokens");
  const auto make = [&](std::int64_t shift) {
    const Tensor tensor = Tensor::empty(stream, DType::i32, {tokens});
    for (std::int64_t i = 0; i < tokens; ++i) {
      const auto at = static_cast<std::uint64_t>(microbatch * 1000 + i + shift);
      tensor.data<std::int32_t>()[i] =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(config.model.vocab), at));
    }
    return tensor;
  };
  return {.inputs = make(0), .targets = make(1), .sequences = config.batch.micro, .seq_len = config.batch.seq_len};
}

/// A pipeline stage with some blocks of a model, or the whole model, initialised and with memory for gradients. It
/// reads random_batch(). Its losses are scaled as in training.
struct ModelStage {
  ModelStage(const Config& config, const RunSetup& setup, DType type, std::optional<Range> blocks = {})
      : model(config, setup.stream, setup.mesh, type, true,
              parts_of(config, blocks.value_or(Range{0, config.model.layers}))),
        stage(setup.stream, [this, config, on = setup.stream](Tape& tape, int microbatch, const Variable& x) {
          TokenBatch batch = random_batch(on, config, microbatch);
          batch.step = Tensor::zeros(on, DType::f64, {1}, MemoryKind::buffers);
          const Transformer::StageResult result = model.forward_stage(tape, batch, x);
          TapeStage::Results results{.y = result.y};
          const auto seed = [&](const std::string& name, const Variable& loss, double scale) {
            results.seeds.push_back(tape.seed(loss, scale));
            losses[name].push_back(loss.value);
          };
          if (model.last_stage()) {
            seed("cross-entropy", result.losses.cross_entropy, 1.0 / static_cast<double>(batch.inputs.size()));
          }
          const double per_sequence = 1.0 / static_cast<double>(config.batch.micro);
          for (const auto& [layer, loss] : result.losses.layers) seed(name_of(loss.kind), loss.value, per_sequence);
          return results;
        }) {
    for (ParameterUnit* unit : model.units()) unit->allocate(setup.stream, type, true);
    model.initialize(config.run.seed);
    model.clear_routing();
  }

  /// Runs forward and backward of micro-batches 0 to `microbatches` − 1. The stage must be the whole model.
  void run(int microbatches) {
    for (int m = 0; m < microbatches; ++m) {
      stage.forward(m, {});
      stage.backward(m, {});
    }
  }
  /// Returns the unit with this name; null if there is none.
  const ParameterUnit* unit(const std::string& name) const {
    for (const ParameterUnit* unit : model.units()) {
      if (unit->name() == name) return unit;
    }
    return nullptr;
  }

  Transformer model;
  TapeStage stage;
  std::map<std::string, std::vector<Tensor>> losses;  // key: name; values in order of forward passes
};

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

inline double size_of_gradient(const ParameterUnit& unit) {
  double sum = 0;
  for (const float value : unit.gradients().span<float>()) sum += static_cast<double>(value) * value;
  return sum;
}

/// Expects values, gradients and routing counts of a stage to be bit-identical to those of the whole model, and its
/// gradients not to be 0. Does not compare the gradient of a tied table, of which each stage has only a part.
inline void expect_part_of(ModelStage& whole, ModelStage& part) {
  for (const ParameterUnit* unit : part.model.units()) {
    const ParameterUnit* expected = whole.unit(unit->name());
    ASSERT_NE(expected, nullptr) << unit->name();
    EXPECT_TRUE(same_bits(unit->values(), expected->values())) << unit->name();
    if (unit == part.model.shared_table()) continue;
    EXPECT_TRUE(same_bits(unit->gradients(), expected->gradients())) << unit->name();
    EXPECT_GT(size_of_gradient(*unit), 0) << unit->name();
  }
  for (const RoutingSums& sums : part.model.routing()) {
    const std::vector<RoutingSums>& all = whole.model.routing();
    const auto same = std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.id == sums.id; });
    ASSERT_NE(same, all.end()) << label_of(sums.id);
    EXPECT_EQ(sums.counts, same->counts);
    EXPECT_EQ(sums.probability, same->probability);
  }
}

}  // namespace lyceum
