#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lyceum {

/// The groups of a rank, with the names that they have in Mesh, and `pipeline_ends`: the first and the last stage of a
/// pipeline, which both have the embedding table if it is tied or modules of multi-token prediction read it.
enum class Axis : std::uint8_t {
  world,
  data,
  tensor,
  pipeline,
  data_tensor,
  expert,
  expert_tensor,
  expert_data,
  expert_copies,
  expert_across,
  expert_within,
  pipeline_ends
};
inline constexpr std::array<std::string_view, 12> axis_names{
    "world",         "data",        "tensor",        "pipeline",      "data_tensor",   "expert",
    "expert_tensor", "expert_data", "expert_copies", "expert_across", "expert_within", "pipeline_ends"};

/// The groups over which a rank's values are summed, one after the other, to obtain the sum over the whole model: first
/// over the ranks of a stage, then over the stages.
inline constexpr std::array whole_model{Axis::data_tensor, Axis::pipeline};

}  // namespace lyceum
