#pragma once

#include <cmath>

#include "kernels/cuda/host_device.h"

namespace lyceum {

/// Return softplus(x) = log(1 + exp(x)) and its derivative, the logistic function, without overflow for any x.
template <class A>
LYCEUM_HOST_DEVICE A softplus(A x) {
  return (x > 0 ? x : A{0}) + std::log1p(std::exp(x > 0 ? -x : x));
}
template <class A>
LYCEUM_HOST_DEVICE A logistic(A x) {
  return A{1} / (A{1} + std::exp(-x));
}

/// Returns log(1 + x) for x in [0, 1] to 1.5 ulp; NaN gives NaN. Computed as x · P(x), where P is the minimax
/// polynomial of log(1 + x) / x on this interval [Remez 1934].
LYCEUM_HOST_DEVICE float fast_log1p(float x) {
  float p = -3.2440252e-3f;
  p = p * x + 1.9851463e-2f;
  p = p * x - 5.6959536e-2f;
  p = p * x + 1.0603655e-1f;
  p = p * x - 1.5305592e-1f;
  p = p * x + 1.9675939e-1f;
  p = p * x - 2.4954134e-1f;
  p = p * x + 3.3329964e-1f;
  p = p * x - 4.9999902e-1f;
  p = p * x + 1.0f;
  return p * x;
}

}  // namespace lyceum
