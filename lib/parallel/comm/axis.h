#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lyceum {

/// The groups of a rank, named as Mesh names them; and the first and the last stage of a pipeline, which share a tied
/// table.
enum class Axis : std::uint8_t {
  world,
  data,
  tensor,
  pipeline,
  data_tensor,
  expert,
  expert_tensor,
  expert_data,
  expert_across,
  expert_within,
  pipeline_ends
};
inline constexpr std::array<std::string_view, 11> axis_names{
    "world",         "data",        "tensor",        "pipeline",      "data_tensor",  "expert",
    "expert_tensor", "expert_data", "expert_across", "expert_within", "pipeline_ends"};

/// The groups over which numbers of single ranks are summed, one after the other, to those of the whole model: the
/// ranks of a stage, then the stages.
inline constexpr std::array whole_model{Axis::data_tensor, Axis::pipeline};

}  // namespace lyceum
