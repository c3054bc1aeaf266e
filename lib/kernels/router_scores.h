#pragma once

#include <cmath>

#include "kernels/cuda/host_device.h"
#include "kernels/routing_policy.h"

namespace lyceum {

/// ds/dx / s of a score s of x that is no softmax.
template <Scores kind, class A>
LYCEUM_HOST_DEVICE A log_slope(A score) {
  if constexpr (kind == Scores::sigmoid) {
    return A{1} - score;
  } else {
    const A softplus = score * score;
    return -std::expm1(-softplus) / (2 * softplus);
  }
}

/// log p, and 0 for a p of 0, which multiplies it everywhere.
template <class A>
LYCEUM_HOST_DEVICE A log_or_zero(A p) {
  return p == 0 ? A{0} : std::log(p);
}

}  // namespace lyceum
