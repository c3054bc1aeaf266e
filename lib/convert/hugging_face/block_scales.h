#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "convert/hugging_face/architecture.h"
#include "core/tensor.h"

/// Weights in FP8 with a factor for each block, as DeepSeek-V3 and Kimi K2 are published. A tensor NAME of type F8_E4M3
/// has a companion NAME_scale_inv, and a weight is the product of its number and of the factor of its block.
namespace lyceum::hugging_face {

/// Extents of a block of weights; blocks at the end of a matrix may be smaller.
struct WeightBlocks {
  std::int64_t rows, cols;
};

/// Returns the blocks that config.json's quantization_config describes; nothing if config.json has no such key, or if
/// it is null or describes MXFP4 (see stacked_experts.h). Throws a bad_input Error for other methods than FP8 with a
/// factor for each block.
std::optional<WeightBlocks> weight_blocks_of(const Json& config);

/// The suffix of the name of a tensor with factors.
constexpr std::string_view scales_suffix = "_scale_inv";

/// Returns the shape of the factors of a matrix. Throws a bad_input Error unless `weights` is the shape of a matrix.
Shape scales_shape(const WeightBlocks& blocks, const Shape& weights);

/// Multiplies each value by the factor of its block. `values`: elements of a flat matrix of shape `weights`, from
/// element `first` on.
void apply_scales(const WeightBlocks& blocks, const Shape& weights, std::span<const float> scales, std::int64_t first,
                  std::span<float> values);

}  // namespace lyceum::hugging_face
