#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/host_device.h"
#include "kernels/weight_update.h"

namespace lyceum {

/// AdamW as an update rule for UpdateWeights [Loshchilov & Hutter 2019, Algorithm 2]:
///   m = β₁ m + (1 − β₁) g;  v = β₂ v + (1 − β₂) g²
///   update = η · (m / (1 − β₁ⁿ)) / (√(v / (1 − β₂ⁿ)) + eps),  where n counts updates from 1
struct AdamW {
  static constexpr std::size_t states = 2;  // m, v
  static constexpr bool scales_gradient = true, changes_states = true;

  /// Numbers of one step that are known before its gradients. They are read from device memory, because a recorded
  /// graph of a step is replayed with new numbers.
  struct Numbers {
    double lr, rate, inverse_bias2;  // η, η / (1 − β₁ⁿ), 1 / (1 − β₂ⁿ)
    std::int64_t update = 0;         // n; only for the rounding of states, see StateRounding::update
  };
  double beta1, beta2, eps;
  std::span<const Numbers> numbers;  // [1]

  /// The rule for elements of accumulator type A. The constants are computed in double and rounded once, because 1 − β₂
  /// computed in float would lose most of its bits. rest: 1 − β.
  template <class A>
  struct Element {
    A beta1, rest1, beta2, rest2, eps, rate, inverse_bias2;

    LYCEUM_HOST_DEVICE A operator()(A gradient, std::array<A, states>& state) const {
      auto& [m, v] = state;
      m = beta1 * m + rest1 * gradient;
      v = beta2 * v + rest2 * gradient * gradient;
      return rate * m / (std::sqrt(v * inverse_bias2) + eps);
    }
  };
  template <class A>
  LYCEUM_HOST_DEVICE Element<A> element() const {
    const Numbers& known = numbers[0];
    return {.beta1 = static_cast<A>(beta1),
            .rest1 = static_cast<A>(1 - beta1),
            .beta2 = static_cast<A>(beta2),
            .rest2 = static_cast<A>(1 - beta2),
            .eps = static_cast<A>(eps),
            .rate = static_cast<A>(known.rate),
            .inverse_bias2 = static_cast<A>(known.inverse_bias2)};
  }
  LYCEUM_HOST_DEVICE double lr() const { return numbers[0].lr; }
};

}  // namespace lyceum
