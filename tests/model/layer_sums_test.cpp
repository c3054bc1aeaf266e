// The measurements of the layers in a training pass are those of the outputs of pipeline stages and of the logits that
// generation computes.
#include "model/layer_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/copy.h"
#include "support/model_stage.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

double squares_of(const Tensor& y) {
  double sum = 0;
  for (const double value : y.span<const double>()) sum += value * value;
  return sum;
}

/// A model or a part of it, with values of the same seed.
struct Part {
  Part(const Config& config, const RunSetup& setup, const Range& blocks)
      : model(config, setup.stream, setup.mesh, DType::f64, true, parts_of(config, blocks)) {
    for (ParameterUnit* unit : model.units()) unit->allocate(setup.stream, DType::f64, true);
    model.initialize(3);
  }
  Transformer model;
};

TEST(LayerSums, AreOfBlocksAndLogits) {
  Config config = tiny_config();
  config.batch = {.global = 2, .micro = 2, .seq_len = 7};
  resolve(config, 1);
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const std::int64_t chunk : {0, 5}) {
      config.model.recompute = recompute;
      config.model.loss_chunk = chunk;
      const auto setup = make_setup(ProcessGroup::self(), {}, CpuStream(1));
      const Stream& stream = setup->stream;
      const std::vector<double> lowest{-std::numeric_limits<double>::infinity()};
      const LayerSums sums{.squares = Tensor::zeros(stream, DType::f64, {config.model.layers}),
                           .largest_logit = tensor_of(stream, {1}, lowest)};
      TokenBatch batch = random_batch(stream, config, 0);
      batch.step = Tensor::zeros(stream, DType::f64, {1});
      batch.layer_sums = &sums;
      Part whole(config, *setup, {0, config.model.layers});
      Tape tape(stream);
      const Transformer::Losses losses = whole.model.forward(tape, batch);
      const std::vector<double> of_forward = values_of<double>(stream, sums.squares);
      std::vector<Tape::Seed> seeds{tape.seed(losses.cross_entropy, 1)};
      for (const auto& [layer, loss] : losses.layers) seeds.push_back(tape.seed(loss.value, 1));
      tape.backward(seeds);
      EXPECT_EQ(values_of<double>(stream, sums.squares), of_forward) << "recomputation was measured";

      batch.layer_sums = nullptr;
      for (std::int64_t blocks = 1; blocks < config.model.layers; ++blocks) {
        Part first(config, *setup, {0, blocks});
        Tape of_part(stream);
        const Tensor y = first.model.forward_stage(of_part, batch, {}).y.value;
        const double expected = squares_of(y);
        EXPECT_NEAR(of_forward[static_cast<std::size_t>(blocks - 1)], expected, 1e-12 * expected) << blocks;
      }
      double largest = lowest[0];
      for (std::int64_t s = 0; s < 2; ++s) {
        std::vector<KeyValueCache> caches = whole.model.new_caches(7);
        for (const std::int32_t token :
             batch.inputs.span<const std::int32_t>().subspan(static_cast<std::size_t>(7 * s), 7)) {
          const Tensor logits = whole.model.next_logits(std::span(&token, 1), caches);
          for (const double logit : logits.span<const double>()) largest = std::max(largest, logit);
        }
      }
      EXPECT_NEAR(values_of<double>(stream, sums.largest_logit)[0], largest, 1e-10 * std::abs(largest));
    }
  }
}

}  // namespace
}  // namespace lyceum
