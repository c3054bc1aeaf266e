#pragma once

#include <cmath>

#include "kernels/cuda/host_device.h"
#include "kernels/routing_policy.h"

namespace lyceum {

/// Returns the logarithmic derivative (ds/dx) / s of a sigmoid or sqrt_softplus score s of the logit x.
template <Scores kind, class A>
LYCEUM_HOST_DEVICE A log_slope(A score) {
  if constexpr (kind == Scores::sigmoid) {
    return A{1} - score;
  } else {
    const A softplus = score * score;
    return -std::expm1(-softplus) / (2 * softplus);
  }
}

/// Returns log p, or 0 if p is 0. Callers multiply the result by p, so that p log p is 0 and not NaN.
template <class A>
LYCEUM_HOST_DEVICE A log_or_zero(A p) {
  return p == 0 ? A{0} : std::log(p);
}

}  // namespace lyceum
