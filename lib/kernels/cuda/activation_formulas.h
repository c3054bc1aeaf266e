#pragma once

#include <cmath>
#include <numbers>
#include <type_traits>

#include "kernels/activation_kind.h"
#include "kernels/cuda/host_device.h"

// Formulas of the activations, forward and backward, for one element with its `inputs` input numbers. A is the type
// that sums are kept in.

namespace lyceum {

/// Returns the logistic function of x. On a GPU, a quotient of floats has an error of up to 2 units in the last place:
/// an exact one contains a branch, so that the elements of a thread would be computed one after another. Divisors above
/// 2^126 give 0: for x below about -87.3, where the exact result is below 1.2e-38.
template <class A>
LYCEUM_DEVICE A logistic_of(A x) {
  const A divisor = A{1} + std::exp(-x);
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<A, float>) return __fdividef(1.0f, divisor);
#endif
  return A{1} / divisor;
}

/// y = silu(gate) · up.
struct Swiglu {
  static constexpr int inputs = inputs_of(Activation::swiglu);

  LYCEUM_HOST_DEVICE explicit Swiglu(const ActivationFunction&) {}

  template <class A>
  LYCEUM_DEVICE A forward(const A (&x)[inputs]) const {
    return x[0] * logistic_of(x[0]) * x[1];
  }
  /// Writes the gradients of the inputs to dx and returns y.
  template <class A>
  LYCEUM_DEVICE A backward(const A (&x)[inputs], A dy, A (&dx)[inputs]) const {
    const A s = logistic_of(x[0]), silu = x[0] * s;
    dx[0] = dy * x[1] * (s + silu * (A{1} - s));  // silu' = σ + g·σ·(1 − σ)
    dx[1] = dy * silu;
    return silu * x[1];
  }
};

/// y = g · σ(α · g) · (u + 1), with g = min(gate, limit), u = max(−limit, min(up, limit)). Comparisons are written so
/// that NaN stays NaN.
struct ClampedSwiglu {
  static constexpr int inputs = inputs_of(Activation::clamped_swiglu);

  float alpha, limit;

  LYCEUM_HOST_DEVICE explicit ClampedSwiglu(const ActivationFunction& function)
      : alpha(function.alpha), limit(function.limit) {}

  template <class A>
  LYCEUM_DEVICE A forward(const A (&x)[inputs]) const {
    const A g = below(x[0]);
    return g * logistic_of(A(alpha) * g) * (within(x[1]) + A{1});
  }
  /// Writes the gradients of the inputs to dx and returns y. Clamped inputs have the gradient 0, or NaN if
  /// dy is NaN.
  template <class A>
  LYCEUM_DEVICE A backward(const A (&x)[inputs], A dy, A (&dx)[inputs]) const {
    const A g = below(x[0]), u = within(x[1]) + A{1}, most(limit), a(alpha);
    const A s = logistic_of(a * g), glu = g * s;
    dx[0] = dy * u * (x[0] > most ? A{0} : s + a * glu * (A{1} - s));  // (g·σ(α·g))' = σ + α·g·σ·(1 − σ)
    dx[1] = dy * (x[1] > most || x[1] < -most ? A{0} : glu);
    return glu * u;
  }

 private:
  template <class A>
  LYCEUM_DEVICE A below(A x) const {
    return x > A(limit) ? A(limit) : x;
  }
  template <class A>
  LYCEUM_DEVICE A within(A x) const {
    return x < -A(limit) ? -A(limit) : below(x);
  }
};

/// y = x · Φ(x), with Φ the cumulative distribution function of the standard normal distribution.
struct Gelu {
  static constexpr int inputs = inputs_of(Activation::gelu);

  LYCEUM_HOST_DEVICE explicit Gelu(const ActivationFunction&) {}

  template <class A>
  LYCEUM_DEVICE A forward(const A (&x)[inputs]) const {
    return x[0] * normal_below(x[0]);
  }
  /// Writes the gradient of the input to dx and returns y.
  template <class A>
  LYCEUM_DEVICE A backward(const A (&x)[inputs], A dy, A (&dx)[inputs]) const {
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

/// Backward pass of one element of y = gate · kind(x): writes the gradients of the inputs to dx, adds dy · kind(x) to
/// d_gate, and returns y.
template <class Kind, class A>
LYCEUM_DEVICE A gated_backward(const Kind& kind, const A (&x)[Kind::inputs], A dy, A gate, A (&dx)[Kind::inputs],
                               A& d_gate) {
  const A y = kind.backward(x, gate * dy, dx);
  d_gate += dy * y;
  return gate * y;
}

}  // namespace lyceum
