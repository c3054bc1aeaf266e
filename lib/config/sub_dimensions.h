#pragma once

#include <array>
#include <cstdint>

#include "config/feature.h"
#include "kernels/piece_scaling.h"

namespace lyceum {

constexpr auto names_of(PieceScaling) { return std::array{"restore", "printed", "none"}; }

/// The factors of a token's pieces: their probabilities, which are scaled, or 1 without scaling.
enum class PieceGates { raw, ones };
constexpr auto names_of(PieceGates) { return std::array{"raw", "ones"}; }

/// [sub_dimensions]: pieces of the residual stream, of which a token uses some [MoHD].
struct SubDimensionsConfig {
  std::int64_t attention = 0, ffn = 0;  // pieces that each half of a block divides hidden into; 0: it uses all of it
  std::int64_t active = 1, shared = 0;  // pieces that a token uses, and those of them that every token uses
  PieceScaling scaling = PieceScaling::restore;
  PieceGates gates = PieceGates::raw;
  std::int64_t fusion_width = -1;  // rows per block of the fusion matrices; 0: no fusion; −1: as many as pieces
};

void declare_keys(ConfigKeys& keys, SubDimensionsConfig& parts);
void check_sub_dimensions(Findings& findings, const Config& config);
void simplify_sub_dimensions(SubDimensionsConfig& parts);

}  // namespace lyceum
