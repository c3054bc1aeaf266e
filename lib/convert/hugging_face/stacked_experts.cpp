#include "convert/hugging_face/stacked_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "model/ffn/dense.h"

namespace lyceum::hugging_face {

namespace {

constexpr std::string_view experts_path = "/mlp/experts/";

/// The place of one of Lyceum's tensors in a stack.
struct Place {
  std::string_view ours, stack;
  std::int64_t first, step;
};
constexpr std::array<Place, 6> places{{{gate_proj, "gate_up_proj", 0, 2},
                                       {up_proj, "gate_up_proj", 1, 2},
                                       {down_proj, "down_proj", 0, 1},
                                       {gate_bias, "gate_up_proj_bias", 0, 2},
                                       {up_bias, "gate_up_proj_bias", 1, 2},
                                       {down_bias, "down_proj_bias", 0, 1}}};

constexpr std::int64_t block_values = 32, block_bytes = block_values / 2;
constexpr int scale_bias = 127, not_a_number = 255;
constexpr int always_finite = 252;  // 6 · 2^(252 − 127) is the largest product of a number and this scale

/// Returns the number that four bits represent: sign, two exponent bits, one mantissa bit.
constexpr float from_e2m1(unsigned bits) {
  constexpr std::array<float, 8> magnitudes{0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const float magnitude = magnitudes[bits & 7u];
  return (bits & 8u) != 0 ? -magnitude : magnitude;
}

/// Returns the tensor of this name and type. Throws a bad_input Error if there is none, or if it has another shape.
const ModelFolder::Tensor& tensor_of(const ModelFolder& model, const std::string& name, const Shape& shape,
                                     bool bytes) {
  const auto found = model.tensors().find(name);
  require_input(found != model.tensors().end(), "{} has no tensor {}, which its {} describes", model.path().string(),
                name, config_name);
  const safetensors::Entry& entry = *found->second.entry;
  require_input(entry.shape == shape, "{}: {} has the shape {}, but the configuration requires {}",
                found->second.file->path(), name, entry.shape, shape);
  require_input((entry.type == safetensors::Type::u8) == bytes, "{}: {} has the type {}, must be {}",
                found->second.file->path(), name, safetensors::name_of(entry.type), bytes ? "U8" : "F32, BF16 or F16");
  return found->second;
}

/// The blocks and scales of a stacked matrix in MXFP4.
struct Quantized {
  const ModelFolder::Tensor &blocks, &scales;

  /// Reads the rows of `part`. Lyceum's rows are whole rows of blocks.
  void read(const StackedPart& part, std::span<float> values) const {
    const std::int64_t rows = part.step * part.rows, groups = part.cols / block_values;
    std::vector<std::uint8_t> row_blocks(static_cast<std::size_t>(groups * block_bytes)),
        row_scales(static_cast<std::size_t>(groups));
    auto value = values.begin();
    for (std::int64_t r = 0; r < part.rows; ++r) {
      const std::int64_t group = (part.expert * rows + part.first + part.step * r) * groups;
      blocks.file->read_bytes(*blocks.entry, group * block_bytes, row_blocks);
      scales.file->read_bytes(*scales.entry, group, row_scales);
      for (std::size_t g = 0; g < row_scales.size(); ++g) {
        const int scale = row_scales[g];
        const float factor = std::ldexp(1.f, scale - scale_bias);
        const auto begin = value;
        for (std::size_t i = g * block_bytes; i < (g + 1) * block_bytes; ++i) {
          for (const unsigned bits : {row_blocks[i] & 15u, static_cast<unsigned>(row_blocks[i]) >> 4u}) {
            *value++ = from_e2m1(bits) * factor;
          }
        }
        const bool finite =
            scale <= always_finite || std::all_of(begin, value, [](float x) { return std::isfinite(x); });
        require_input(scale != not_a_number && finite, "{}: {} is not finite: its scale {} is {}", scales.file->path(),
                      scales.entry->name, group + static_cast<std::int64_t>(g), scale);
      }
    }
  }
};

}  // namespace

void StackedPart::put(std::span<const float> values, std::span<float> slab) const {
  for (std::int64_t c = 0; c < cols; ++c) {
    float* const to = slab.data() + c * step * rows + first;
    for (std::int64_t r = 0; r < rows; ++r) to[step * r] = values[static_cast<std::size_t>(r * cols + c)];
  }
}

void StackedPart::take(std::span<const float> slab, std::span<float> values) const {
  for (std::int64_t c = 0; c < cols; ++c) {
    const float* const from = slab.data() + c * step * rows + first;
    for (std::int64_t r = 0; r < rows; ++r) values[static_cast<std::size_t>(r * cols + c)] = from[step * r];
  }
}

std::optional<StackedPart> stacked_part(const Architecture& architecture, std::int64_t experts,
                                        const ModelTensor& tensor) {
  const std::size_t at = tensor.name.find(experts_path);
  if (!architecture.stacked_experts || at == std::string::npos) return {};
  const std::string_view rest = std::string_view(tensor.name).substr(at + experts_path.size());
  std::int64_t expert = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), expert);
  require(error == std::errc() && end != rest.data() + rest.size(), "{} is not a tensor of an expert", tensor.name);
  const std::string_view ours = rest.substr(static_cast<std::size_t>(end - rest.data()) + 1);
  const auto place = std::ranges::find(places, ours, &Place::ours);
  require(place != places.end(), "{} has no place in a stack", tensor.name);
  const std::int64_t rows = tensor.shape[0], cols = tensor.shape.rank() > 1 ? tensor.shape[1] : 1;
  const std::string path = tensor.name.substr(0, at + experts_path.size());
  const Shape stack =
      tensor.shape.rank() > 1 ? Shape{experts, cols, place->step * rows} : Shape{experts, place->step * rows};
  return StackedPart{.name = name_in_transformers(architecture, {}, path + std::string(place->stack)),
                     .stack = stack,
                     .expert = expert,
                     .experts = experts,
                     .rows = rows,
                     .cols = cols,
                     .first = place->first,
                     .step = place->step};
}

StackedSource stacked_source(const ModelFolder& model, const StackedPart& part) {
  const std::string blocks = part.name + "_blocks", scales = part.name + "_scales";
  if (model.tensors().contains(part.name) || !model.tensors().contains(blocks)) {
    const ModelFolder::Tensor& stack = tensor_of(model, part.name, part.stack, false);
    return {.names = {part.name}, .make = [stack, part](std::span<float> values) {
              std::vector<float> slab(static_cast<std::size_t>(part.slab()));
              stack.read(part.expert * part.slab(), slab);
              part.take(slab, values);
            }};
  }
  require_input(part.cols % block_values == 0, "{}: {} has blocks of {} numbers, which do not divide rows of {}",
                model.path().string(), blocks, block_values, part.cols);
  const std::int64_t rows = part.step * part.rows, groups = part.cols / block_values;
  const Quantized quantized{tensor_of(model, blocks, {part.experts, rows, groups, block_bytes}, true),
                            tensor_of(model, scales, {part.experts, rows, groups}, true)};
  return {.names = {blocks, scales},
          .make = [quantized, part](std::span<float> values) { quantized.read(part, values); }};
}

void require_stacked_experts(const ModelFolder& model, const Config& config) {
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    const std::string name = fmt::format("model.layers.{}.mlp.experts.down_proj_bias", layer);
    const auto found = model.tensors().find(name);
    require_input(found != model.tensors().end(), "{} has no tensor {}, which its {} describes", model.path().string(),
                  name, config_name);
    const Shape& shape = found->second.entry->shape;
    require_input(shape == Shape({config.moe.experts, config.model.hidden}),
                  "{}: {} has the shape {}, but {} describes {} experts with hidden_size = {}",
                  found->second.file->path(), name, shape, config_name, config.moe.experts, config.model.hidden);
  }
}

}  // namespace lyceum::hugging_face
