#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "support/trajectory.h"

namespace lyceum {
namespace {

/// Returns the index of a weight's layer in LayerMetrics.
std::size_t layer_of(const std::string& name, std::int64_t layers) {
  const std::string prefix = "model/layers/";
  if (name.starts_with(prefix)) return static_cast<std::size_t>(std::stoi(name.substr(prefix.size()))) + 1;
  return name.starts_with("model/embed_tokens/") ? 0 : static_cast<std::size_t>(layers) + 1;
}

double norm_of(const std::vector<double>& parts) {
  double squares = 0;
  for (const double part : parts) squares += part * part;
  return std::sqrt(squares);
}

TEST(LayerMetrics, AreThoseOfTheWeightsAndAddUp) {
  for (const int zero : {0, 1, 3}) {
    Config config = tiny_config();
    config.run.layer_metrics_every = 2;
    config.parallel.zero = zero;
    config.parallel.expert = world_size();
    TinyTraining training(config, test_world());
    const std::vector<StepResult> steps = training.run(0, 4);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      ASSERT_EQ(steps[s].layers.has_value(), s % 2 == 1) << s;
      if (!steps[s].layers) continue;
      const LayerMetrics& layers = *steps[s].layers;
      expect_close(norm_of(layers.weight_norms), steps[s].weight_norm, 1e-12, "weights");
      expect_close(norm_of(layers.gradient_norms), steps[s].grad_norm, 1e-12, "gradients");
      EXPECT_EQ(std::ssize(layers.activation_norms), config.model.layers);
    }
    std::vector<double> squares(static_cast<std::size_t>(config.model.layers) + 2, 0.0);
    for (const Trajectory::Slice& slice : training.weights()) {
      if (slice.name.starts_with("optimizer/")) continue;
      for (const float value : slice.values) {
        squares[layer_of(slice.name, config.model.layers)] += std::pow(static_cast<double>(value), 2);
      }
    }
    training.setup().mesh.world.all_reduce(std::span(squares));
    for (std::size_t layer = 0; layer < squares.size(); ++layer) {
      expect_close(steps.back().layers->weight_norms[layer], std::sqrt(squares[layer]), 1e-12,
                   "weights of layer " + std::to_string(layer));
    }
  }
}

/// Measuring changes no result.
TEST(LayerMetrics, ChangeNoBit) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Config config = tiny_config();
    config.parallel.expert = world_size();
    config.run.layer_metrics_every = 0;
    const Trajectory plain = train(config, test_world(), 3, type);
    config.run.layer_metrics_every = 1;
    const Trajectory measured = train(config, test_world(), 3, type);
    EXPECT_EQ(measured.weights, plain.weights);
    EXPECT_FALSE(plain.steps.back().layers.has_value());
    EXPECT_TRUE(measured.steps.back().layers.has_value());
  }
}

/// The values of every mesh are compared with those of the serial run in axes_matrix_test.cpp.
TEST(LayerMetrics, AreEqualOnAllRanks) {
  Config config = tiny_config();
  config.run.layer_metrics_every = 1;
  if (world_size() > 1) config.parallel.pipeline = 2;
  if (world_size() > 2) config.parallel.tensor = 2;
  TinyTraining training(config, test_world());
  const LayerMetrics layers = training.run(0, 1).front().layers.value();
  std::vector<double> own = layers.weight_norms;
  own.insert(own.end(), layers.gradient_norms.begin(), layers.gradient_norms.end());
  own.insert(own.end(), layers.activation_norms.begin(), layers.activation_norms.end());
  own.push_back(layers.largest_logit);
  own.insert(own.end(), layers.attention_logits.begin(), layers.attention_logits.end());
  EXPECT_EQ(std::ssize(layers.attention_logits), config.model.layers);
  std::vector<double> most = own, least = own;
  training.setup().mesh.world.all_reduce(std::span(most), Reduction::max);
  training.setup().mesh.world.all_reduce(std::span(least), Reduction::min);
  EXPECT_EQ(most, least);
}

}  // namespace
}  // namespace lyceum
