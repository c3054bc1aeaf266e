#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/routing/activation_flow.h"

namespace lyceum {

/// Accumulates the statistics of ActivationFlow::Values over tokens, for either the input or the output of one half of
/// a block. To combine the sums of several ranks, add their numbers() element by element.
class ActivationSums {
 public:
  explicit ActivationSums(std::int64_t hidden);

  /// Adds the tokens of whole sequences. x: [tokens, hidden], where tokens is a multiple of `seq_len`. Throws an Error
  /// if a value is not finite.
  void add(std::span<const float> x, std::int64_t seq_len);
  /// Returns all sums in a fixed order, for an all-reduce. If the caller replaces them by their totals over ranks,
  /// means() returns the means over the tokens of all ranks.
  std::span<double> numbers() { return numbers_; }
  /// Returns the means over all sequences that were added. `samples` ≥ 1 is the number of these sequences, on all ranks
  /// whose numbers() were added up, and `seq_len` their length. `id` and `output` are copied to the result.
  ActivationFlow::Values means(const MixtureId& id, bool output, std::int64_t samples, std::int64_t seq_len) const;

 private:
  /// The sections of numbers_.
  struct Views {
    std::span<double> magnitude, top_share;  // [hidden]
    /// [high_parts, longest_window], for each share in high_parts: element n counts the pairs (token, dimension) for
    /// which the token is the (n + 1)-th consecutive one with a high value in the dimension. The last element also
    /// counts all later tokens of longer ranges.
    std::span<double> lengths;
    /// [high_parts, shared_window + 1]: element n counts the pairs (window, dimension) for which the dimension is high
    /// in exactly n of the window's shared_window tokens.
    std::span<double> shared;
    double& median;
  };
  Views views();
  // Adds magnitude, top share and median of one token, and fills sorted_. magnitude: [hidden], x² of the token.
  void add_token(std::span<const float> magnitude);
  // Adds the high dimensions of the token whose magnitudes are in sorted_. `position`: its index in the sequence.
  void add_high(std::span<const float> magnitude, std::int64_t position);

  std::int64_t hidden_;
  std::vector<double> numbers_;
  /// magnitude_: x² of the current token, [hidden]; sorted_: the same in descending order.
  std::vector<float> magnitude_, sorted_;
  // State at the current token, [high_parts, hidden]. high_length_: for how many tokens in a row the dimension has been
  // high, at most longest_window. recently_high_: one bit for each of the last shared_window tokens, set if the
  // dimension was high.
  std::vector<std::uint8_t> high_length_, recently_high_;
};

}  // namespace lyceum
