#include "convert/hugging_face/block_scales.h"

#include <cstddef>

#include "convert/hugging_face/fields.h"
#include "core/error.h"
#include "io/text/json.h"

namespace lyceum::hugging_face {

namespace {

std::int64_t blocks_for(std::int64_t extent, std::int64_t block) {
  return extent / block + (extent % block != 0 ? 1 : 0);
}

}  // namespace

std::optional<WeightBlocks> weight_blocks_of(const Json& config) {
  constexpr const char *key = "quantization_config", *size = "weight_block_size";
  const Json& given = value_of(config, key);
  if (given.is_null()) return std::nullopt;
  require_input(given.is_object(), "{} = {} is not an object", key, excerpt(json_text(given)));
  if (value_of(given, "quant_method") == "mxfp4") return std::nullopt;  // of single architectures, see mxfp4()
  const Json& method = value_of(given, "quant_method");
  require_input(method == "fp8",
                "{} has quant_method = {}: Lyceum reads weights quantized with fp8 and, of gpt_oss, mxfp4", key,
                excerpt(json_text(method)));
  const Json format = value_or(given, "fmt", "e4m3");
  require_input(format == "e4m3" || format == "float8_e4m3fn",  // two names of one format
                "{} has fmt = {}: Lyceum reads quantized weights only with fmt = \"e4m3\"", key,
                excerpt(json_text(format)));
  const auto extents = number_of<std::vector<std::int64_t>>(value_or(given, size, Json::array({128, 128})), size);
  require_input(extents.size() == 2 && extents[0] > 0 && extents[1] > 0, "{} has {} = {}: must be two numbers above 0",
                key, size, excerpt(json_text(value_of(given, size))));
  return WeightBlocks{extents[0], extents[1]};
}

Shape scales_shape(const WeightBlocks& blocks, const Shape& weights) {
  require_input(weights.rank() == 2, "its shape is {}, but weights in FP8 must be matrices", weights);
  return {blocks_for(weights[0], blocks.rows), blocks_for(weights[1], blocks.cols)};
}

void apply_scales(const WeightBlocks& blocks, const Shape& weights, std::span<const float> scales, std::int64_t first,
                  std::span<float> values) {
  if (values.empty()) return;
  const std::int64_t cols = weights[1], across = blocks_for(cols, blocks.cols);
  std::int64_t row = first / cols, col = first % cols;
  for (float& value : values) {
    value *= scales[static_cast<std::size_t>(row / blocks.rows * across + col / blocks.cols)];
    if (++col == cols) {
      col = 0;
      ++row;
    }
  }
}

}  // namespace lyceum::hugging_face
