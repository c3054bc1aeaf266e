#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/routing/activation_flow.h"

namespace lyceum {

/// Accumulates the statistics of ActivationFlow::Values over tokens, for one half of a block and its input or its
/// output. The sums of several ranks can be added up element by element (numbers()).
class ActivationSums {
 public:
  explicit ActivationSums(std::int64_t hidden);

  /// Adds the tokens of whole sequences. x: [tokens, hidden], where tokens is a multiple of `seq_len`. Throws an Error
  /// if a value is not finite.
  void add(std::span<const float> x, std::int64_t seq_len);
  /// Returns all sums in a fixed order, for an all-reduce. The means are those of all ranks once the sums are replaced
  /// by their totals over ranks.
  std::span<double> numbers() { return numbers_; }
  /// Returns the means over `samples` ≥ 1 sequences of `seq_len` tokens. `id` and `output` are copied to the result.
  ActivationFlow::Values means(const MixtureId& id, bool output, std::int64_t samples, std::int64_t seq_len) const;

 private:
  /// The sections of numbers_.
  struct Views {
    std::span<double> magnitude, top_share;  // [hidden]
    /// [high_parts, longest_window]: pairs of token and dimension such that the dimension is high for the (r + 1)-th
    /// token in a row; the last entry has all longer ranges.
    std::span<double> lengths;
    /// [high_parts, shared_window + 1]: pairs of window and dimension such that the dimension is high in n tokens of
    /// the window.
    std::span<double> shared;
    double& median;
  };
  Views views();
  // Adds magnitude, top share and median of one token; fills sorted_. magnitude: [hidden], x².
  void add_token(std::span<const float> magnitude);
  // Adds the high dimensions of the token whose magnitudes are in sorted_. `position`: its index in the sequence.
  void add_high(std::span<const float> magnitude, std::int64_t position);

  std::int64_t hidden_;
  std::vector<double> numbers_;
  /// x² of one token, [hidden]; sorted_ in descending order.
  std::vector<float> magnitude_, sorted_;
  // State at the current token, [high_parts, hidden]. high_length_: for how many tokens in a row the dimension has been
  // high, at most longest_window. recently_high_: one bit for each of the last shared_window tokens, set if the
  // dimension was high.
  std::vector<std::uint8_t> high_length_, recently_high_;
};

}  // namespace lyceum
