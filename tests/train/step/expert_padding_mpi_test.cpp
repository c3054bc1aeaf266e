// Rows of experts are padded in memory. The padding is zero, stays zero during training, and is not in checkpoints.
#include <gtest/gtest.h>

#include <vector>

#include "support/tested_world.h"
#include "support/tiny_run.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

/// Returns a flag per element of a parameter in memory: true if it belongs to a logical tensor, false if it is padding.
std::vector<bool> held(const Parameter& parameter) {
  std::vector<bool> all(static_cast<std::size_t>(parameter.shape.size()));
  for (const ParameterSlice& slice : parameter.slices) {
    const std::int64_t columns = slice.extent[slice.extent.rank() - 1],
                       padded = slice.in_memory()[slice.extent.rank() - 1];
    for (std::int64_t row = 0; columns > 0 && row < slice.extent.size() / columns; ++row) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto at = static_cast<std::size_t>(slice.first + row * padded + c);
        EXPECT_FALSE(all[at]) << parameter.name;
        all[at] = true;
      }
    }
  }
  return all;
}

TEST(ExpertPadding, StaysZeroWhileTheExpertsTrain) {
  for (const Activation ffn : {Activation::swiglu, Activation::gelu, Activation::clamped_swiglu}) {
    Config config = tiny_config();
    config.model.ffn = ffn;
    config.model.ffn_bias = ffn != Activation::swiglu;
    config.moe.expert_sizes = {5, 8, 3, 9};
    config.moe.experts = 4;
    config.optim.weight_decay = 0.1;
    TinyTraining training(config, test_world());
    training.run(0, 4);
    std::int64_t padding = 0, trained = 0;
    for (const auto& unit : training.model().units()) {
      for (const auto& parameter : unit->parameters()) {
        const std::vector<bool> in_piece = held(*parameter);
        for (std::size_t i = 0; i < in_piece.size(); ++i) {
          if (!in_piece[i]) {
            EXPECT_EQ(parameter->value.data<float>()[i], 0.0f) << parameter->name << " element " << i;
          }
          ++(in_piece[i] ? trained : padding);
        }
        if (parameter->name.ends_with("down_proj/weight")) {
          EXPECT_EQ(parameter->shape[1] % 8, 0) << parameter->name;
        }
      }
    }
    EXPECT_GT(padding, 0);
    EXPECT_GT(trained, padding);
  }
}

}  // namespace
}  // namespace lyceum
