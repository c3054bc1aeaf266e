#pragma once

#include <cmath>

#include "kernels/cuda/host_device.h"

namespace lyceum {

/// softplus(x) = log(1 + exp(x)) and its derivative, which do not overflow.
template <class A>
LYCEUM_HOST_DEVICE A softplus(A x) {
  return (x > 0 ? x : A{0}) + std::log1p(std::exp(x > 0 ? -x : x));
}
template <class A>
LYCEUM_HOST_DEVICE A logistic(A x) {
  return A{1} / (A{1} + std::exp(-x));
}

}  // namespace lyceum
