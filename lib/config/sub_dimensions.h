#pragma once

#include <array>
#include <cstdint>

#include "config/feature.h"
#include "kernels/sub_dimension_scaling.h"

namespace lyceum {

constexpr auto names_of(SubDimensionScaling) { return std::array{"restore", "printed", "none"}; }

/// The factors of a token's sub-dimensions: their probabilities, scaled by sub_dimensions.scaling, or 1.
enum class SubDimensionGates { raw, ones };
constexpr auto names_of(SubDimensionGates) { return std::array{"raw", "ones"}; }

/// [sub_dimensions]: equal parts of the residual stream, of which a token uses some [MoHD].
struct SubDimensionsConfig {
  /// Number of sub-dimensions into which each half of a block divides hidden; 0: the half uses all of hidden.
  std::int64_t attention = 0, ffn = 0;
  /// `active`: number of sub-dimensions that a token uses. `shared`: how many of these are the same for every token,
  /// the first ones; if all are, the router only scales them.
  std::int64_t active = 1, shared = 0;
  SubDimensionScaling scaling = SubDimensionScaling::restore;
  SubDimensionGates gates = SubDimensionGates::raw;
  bool input_gates = false;  // the inputs of Q, K, V, gate and up are multiplied by these factors, too
  /// Rows per diagonal block of the fusion matrices; 0: no fusion; −1: the number of sub-dimensions.
  std::int64_t fusion_width = -1;
};

/// True if tokens choose some of their active sub-dimensions; false if all active ones are shared, or no half is
/// divided.
inline bool chooses_sub_dimensions(const SubDimensionsConfig& parts) {
  return (parts.attention > 0 || parts.ffn > 0) && parts.shared < parts.active;
}

void declare_keys(ConfigKeys& keys, SubDimensionsConfig& parts);
void check_sub_dimensions(Findings& findings, const Config& config);
void simplify_sub_dimensions(SubDimensionsConfig& parts);

}  // namespace lyceum
