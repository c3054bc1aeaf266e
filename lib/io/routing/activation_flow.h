#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/routing/mixture_id.h"

namespace lyceum {

/// A dimension of a token is high with respect to one of these parts if it is among that part of the token's dimensions
/// with the largest magnitudes, and not 0.
inline constexpr std::array high_parts{0.05, 0.1, 0.2, 0.5};
/// Numbers of consecutive tokens that are examined: dimensions that are high in all tokens of windows of 1 to
/// `longest_window` tokens, and dimensions that are high in n tokens of windows of `shared_window` tokens.
inline constexpr std::int64_t longest_window = 20, shared_window = 5;
/// Returns how many dimensions are a part of all: ⌈part · hidden⌉, at least 1.
std::int64_t dimensions_of(double part, std::int64_t hidden);

/// Statistics of how activations are distributed over the hidden dimensions of a token, and for how many consecutive
/// tokens a dimension stays high. [MoHD §3; docs/routing.md has the definitions]
struct ActivationFlow {
  /// Statistics of the vectors that one half of a block reads (after the norm) or returns (before the residual is
  /// added). They are means over tokens, or over windows of consecutive tokens of one sequence; NaN if all sequences
  /// are shorter than the window.
  struct Values {
    MixtureId id;                   // layer and half of the block
    bool output = false;            // vectors that the half returns; false: that it reads
    std::vector<double> magnitude;  // [hidden]: x_i²
    double median = 0;              // median of a token's x_i²
    std::vector<double> top_share;  // [hidden]: element m: share of Σ x_i² in a token's m + 1 largest dimensions
    std::vector<double> common;     // [high_parts, longest_window]: [q, w]: dimensions high in all of w + 1 tokens
    std::vector<double> shared;     // [high_parts, shared_window + 1]: [q, n]: high in n of shared_window tokens
    /// [high_parts]: number of consecutive tokens that a dimension stays high, mean over all such ranges; NaN if no
    /// dimension is ever high.
    std::vector<double> run;

    /// Returns the mean of x_i² over the dimensions.
    double mean_magnitude() const;
    /// Returns the share of a token's magnitude in the largest `part` of its dimensions.
    double share_of_top(double part) const;
    /// Returns the smallest part of the dimensions whose share of the magnitude is at least `share`.
    double dimensions_for(double share) const;
    /// Returns the part of the dimensions that are high in all of `tokens` consecutive tokens. `q` is an index into
    /// high_parts.
    double common_part(std::size_t q, std::int64_t tokens) const;
  };
  std::string checkpoint, data;
  std::int64_t step = 0, tokens = 0, seq_len = 0, hidden = 0;
  double loss = 0;                  // nats per token
  std::vector<Values> values = {};  // in forward order: input and output of attention, then of the FFN, for each layer
};

/// Returns a table with one row per element of `values`, and how much the outputs of the halves differ between layers.
std::string flow_text(const ActivationFlow& flow);
/// Returns the contents of the table as one JSON object.
std::string flow_json(const ActivationFlow& flow);
/// Writes all statistics to an HDF5 file; docs/routing.md describes it. Throws as write_hdf5() does.
void write_flow(const std::filesystem::path& file, const ActivationFlow& flow);

constexpr std::int64_t flow_format_version = 1;

}  // namespace lyceum
