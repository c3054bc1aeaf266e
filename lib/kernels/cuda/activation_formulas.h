#pragma once

#include <cmath>
#include <numbers>

#include "kernels/activation_kind.h"
#include "kernels/cuda/host_device.h"

// Formulas of the activations, forward and backward, for one element with its `inputs` input numbers. A is the type
// that sums are kept in.

namespace lyceum {

/// y = silu(gate) · up.
struct Swiglu {
  static constexpr int inputs = inputs_of(Activation::swiglu);

  template <class A>
  LYCEUM_DEVICE static A forward(const A (&x)[inputs]) {
    return x[0] * sigmoid(x[0]) * x[1];
  }
  /// Writes the gradients of the inputs to dx and returns y.
  template <class A>
  LYCEUM_DEVICE static A backward(const A (&x)[inputs], A dy, A (&dx)[inputs]) {
    const A s = sigmoid(x[0]), silu = x[0] * s;
    dx[0] = dy * x[1] * (s + silu * (A{1} - s));  // silu' = σ + g·σ·(1 − σ)
    dx[1] = dy * silu;
    return silu * x[1];
  }

 private:
  template <class A>
  LYCEUM_DEVICE static A sigmoid(A x) {
    return A{1} / (A{1} + std::exp(-x));
  }
};

/// y = x · Φ(x), with Φ the cumulative distribution function of the standard normal distribution.
struct Gelu {
  static constexpr int inputs = inputs_of(Activation::gelu);

  template <class A>
  LYCEUM_DEVICE static A forward(const A (&x)[inputs]) {
    return x[0] * normal_below(x[0]);
  }
  /// Writes the gradient of the input to dx and returns y.
  template <class A>
  LYCEUM_DEVICE static A backward(const A (&x)[inputs], A dy, A (&dx)[inputs]) {
    constexpr A highest = std::numbers::inv_sqrtpi_v<A> * std::numbers::sqrt2_v<A> / 2;  // 1/√(2π)
    const A below = normal_below(x[0]);
    dx[0] = dy * (below + x[0] * highest * std::exp(-x[0] * x[0] / 2));  // Φ + u·φ
    return x[0] * below;
  }

 private:
  template <class A>
  LYCEUM_DEVICE static A normal_below(A x) {
    constexpr A scale = std::numbers::sqrt2_v<A> / 2;
    return A{0.5} * std::erfc(-x * scale);
  }
};

/// Backward pass of one element of y = gate · Kind(x): writes the gradients of the inputs to dx, adds dy · Kind(x) to
/// d_gate, and returns y.
template <class Kind, class A>
LYCEUM_DEVICE A gated_backward(const A (&x)[Kind::inputs], A dy, A gate, A (&dx)[Kind::inputs], A& d_gate) {
  const A y = Kind::backward(x, gate * dy, dx);
  d_gate += dy * y;
  return gate * y;
}

}  // namespace lyceum
