#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/routing/mixture_id.h"

namespace lyceum {

/// A dimension of a token is high where its magnitude is among so large a part of the token's magnitudes, and not 0.
inline constexpr std::array high_parts{0.05, 0.1, 0.2, 0.5};
/// Consecutive tokens that are reported: up to so many for what stays high, just so many for what they have in common.
inline constexpr std::int64_t longest_window = 20, shared_window = 5;
/// ⌈part · hidden⌉, 1 at least: the dimensions that can be high.
std::int64_t dimensions_of(double part, std::int64_t hidden);

/// How activations are spread over the hidden dimensions of a token, and how long a dimension stays high from token to
/// token. [MoHD §3; docs/routing.md has the definitions]
struct ActivationFlow {
  /// Of the vectors that half of a block reads (behind the norm) or gives (before the residual is added). Means over
  /// tokens, or over windows of consecutive tokens of one sequence; NaN where sequences are too short for a window.
  struct Values {
    MixtureId id;  // layer and half
    bool output = false;
    std::vector<double> magnitude;  // [hidden]: x_i²
    double median = 0;              // of a token's x_i²
    std::vector<double> top_share;  // [hidden]: share of Σ x_i² that the m + 1 largest ones of a token have
    std::vector<double> common;     // [high_parts, longest_window]: dimensions high in all of w + 1 tokens
    std::vector<double> shared;     // [high_parts, shared_window + 1]: dimensions high in n of shared_window tokens
    std::vector<double> run;        // [high_parts]: tokens in a row that a dimension stays high; NaN where none is

    double mean_magnitude() const;
    /// Share of a token's magnitude in that part of its dimensions, its largest.
    double share_of_top(double part) const;
    /// The smallest part of the dimensions whose mean share is at least `share`.
    double dimensions_for(double share) const;
    /// common, as a part of hidden; q: index into high_parts.
    double common_part(std::size_t q, std::int64_t tokens) const;
  };
  std::string checkpoint, data;
  std::int64_t step = 0, tokens = 0, seq_len = 0, hidden = 0;
  double loss = 0;                  // nats a token
  std::vector<Values> values = {};  // in the order of forward: input and output of attention, then of the FFN
};

/// A row each, and how much the halves' outputs differ between layers.
std::string flow_text(const ActivationFlow& flow);
/// One JSON object with what the table has.
std::string flow_json(const ActivationFlow& flow);
/// HDF5, see docs/routing.md.
void write_flow(const std::filesystem::path& file, const ActivationFlow& flow);

constexpr std::int64_t flow_format_version = 1;

}  // namespace lyceum
