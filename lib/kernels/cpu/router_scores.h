#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/vector_math.h"
#include "kernels/logistic.h"
#include "kernels/router.h"
#include "kernels/router_scores.h"

namespace lyceum {

/// Returns the sigmoid or sqrt_softplus score of a logit (see RouteTokens). The comparison `logit < least`, not its
/// negation, keeps NaN.
template <Scores kind, class A>
A score_of(A logit) {
  constexpr A least = least_logit;
  const A x = logit < least ? least : logit;
  if constexpr (kind == Scores::sigmoid) {
    return A{1} / (A{1} + fast_exp(-x));
  } else {
    return std::sqrt(softplus(x));
  }
}

/// Returns the entropy −Σ p log p of the probabilities p = scores · inverse.
template <class A>
A entropy_of(const A* scores, std::int64_t cols, A inverse) {
  A entropy = 0;
  for (std::int64_t c = 0; c < cols; ++c) {
    const A p = scores[c] * inverse;
    entropy -= p * log_or_zero(p);
  }
  return entropy;
}

}  // namespace lyceum
