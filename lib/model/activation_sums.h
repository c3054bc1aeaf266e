#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/routing/activation_flow.h"

namespace lyceum {

/// Sums over tokens of what ActivationFlow::Values contains for vectors of one kind.
class ActivationSums {
 public:
  explicit ActivationSums(std::int64_t hidden);

  /// x: [tokens, hidden], whole sequences of `seq_len`. Throws an Error where a number is not finite.
  void add(std::span<const float> x, std::int64_t seq_len);
  /// What ranks add up: every rank's numbers, in one order.
  std::span<double> numbers() { return numbers_; }
  /// Of `samples` sequences of `seq_len`, one at least.
  ActivationFlow::Values means(const MixtureId& id, bool output, std::int64_t samples, std::int64_t seq_len) const;

 private:
  struct Parts {                             // of the numbers
    std::span<double> magnitude, top_share;  // [hidden]
    std::span<double> runs;    // [high_parts, longest_window]: places where a dimension is high for just r + 1 tokens
    std::span<double> shared;  // [high_parts, shared_window + 1]: dimensions of windows
    double& median;
  };
  Parts parts();
  void add_token(std::span<const float> magnitude);
  void add_high(std::span<const float> magnitude, std::int64_t place);

  std::int64_t hidden_;
  std::vector<double> numbers_;
  std::vector<float> magnitude_, sorted_;  // of one token, [hidden]; sorted: falling
  // Of each dimension, [high_parts, hidden]: tokens that it has been high for, longest_window for more; and which of
  // the last shared_window tokens, a bit each.
  std::vector<std::uint8_t> run_, recent_;
};

}  // namespace lyceum
