#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/host_device.h"
#include "kernels/sub_dimension_scaling.h"

namespace lyceum {

constexpr std::int64_t max_sub_dimensions = 256;  // largest number of sub-dimensions that hidden is cut into

/// The active sub-dimensions of a token: the first always_on and the k entries of `chosen`. Entries of −1 are ignored.
class ActiveSubDimensions {
 public:
  LYCEUM_HOST_DEVICE ActiveSubDimensions(std::int64_t always_on, const std::int32_t* chosen, std::int64_t k)
      : always_on_(always_on) {
    for (std::int64_t j = 0; j < k; ++j) {
      if (chosen[j] >= 0) words_[chosen[j] / 64] |= std::uint64_t{1} << (chosen[j] % 64);
    }
  }
  LYCEUM_HOST_DEVICE bool contains(std::int64_t i) const {
    return i < always_on_ || (words_[i / 64] >> (i % 64) & 1) != 0;
  }

 private:
  std::int64_t always_on_;
  std::uint64_t words_[max_sub_dimensions / 64] = {};  // bit i is set if sub-dimension i was chosen
};

/// Returns the row of the [tokens · sub_dimensions, hidden / sub_dimensions] view of hidden that a pair (token · k +
/// choice) refers to; −1 if pair < 0. `rows` is a SubDimensionRows.
template <class Rows>
LYCEUM_HOST_DEVICE std::int64_t source_of(const Rows& rows, std::int64_t pair) {
  const std::int64_t k = rows.index.cols;
  return pair < 0 ? -1 : pair / k * rows.sub_dimensions + rows.index.row(pair / k)[pair % k];
}

/// Returns the row of PlaceSubDimensions::rows for one sub-dimension of token t; −1 if the token has not chosen it or
/// the choice has no row (slot −1).
template <class Place>
LYCEUM_HOST_DEVICE std::int64_t slot_of(const Place& place, std::int64_t t, std::int64_t sub_dimension) {
  const std::int64_t k = place.index.cols;
  for (std::int64_t j = 0; j < k; ++j) {
    if (place.index.row(t)[j] == sub_dimension) return place.slot[static_cast<std::size_t>(t * k + j)];
  }
  return -1;
}

/// Writes the gradient of one token's factors c from `slope`, the derivatives by its shares c_i / Σ c (see
/// SubDimensionLoad).
template <class A>
LYCEUM_HOST_DEVICE void shares_gradient(const A* factors, std::int64_t sub_dimensions, const double* slope,
                                        A* d_factors) {
  double sum = 0, dot = 0;
  for (std::int64_t i = 0; i < sub_dimensions; ++i) {
    sum += static_cast<double>(factors[i]);
    dot += static_cast<double>(factors[i]) * slope[i];
  }
  for (std::int64_t i = 0; i < sub_dimensions; ++i) d_factors[i] = static_cast<A>((slope[i] - dot / sum) / sum);
}

/// The softmax of one token's logits: p_i = exp(x_i − largest) · inverse. Call with x_i to get p_i.
template <class A>
struct SubDimensionSoftmax {
  A largest, inverse;  // max_i x_i; 1 / Σ exp(x_i − largest)
  A on = 0;            // P: the sum of p over the active sub-dimensions

  LYCEUM_HOST_DEVICE SubDimensionSoftmax(const A* logits, std::int64_t sub_dimensions,
                                         const ActiveSubDimensions& active)
      : largest(logits[0]) {
    for (std::int64_t i = 1; i < sub_dimensions; ++i) {
      if (!(logits[i] <= largest)) largest = logits[i];  // this comparison keeps a NaN
    }
    A sum = 0;
    for (std::int64_t i = 0; i < sub_dimensions; ++i) {
      const A e = std::exp(logits[i] - largest);
      sum += e;
      if (active.contains(i)) on += e;
    }
    inverse = A{1} / sum;
    on *= inverse;
  }
  LYCEUM_HOST_DEVICE A operator()(A logit) const { return std::exp(logit - largest) * inverse; }
};

/// Writes the factors of one token: factors_i = α g_i for active sub-dimensions, else 0. SubDimensionScaling defines α
/// and g.
template <class A>
LYCEUM_HOST_DEVICE void compute_factors(const A* logits, std::int64_t sub_dimensions, const ActiveSubDimensions& on,
                                        SubDimensionScaling scaling, A* factors) {
  const SubDimensionSoftmax<A> p(logits, sub_dimensions, on);
  const A n = static_cast<A>(sub_dimensions);
  A alpha = 1;
  if (scaling == SubDimensionScaling::restore) alpha = n / p.on;
  if (scaling == SubDimensionScaling::printed) alpha = n * p.on;
  for (std::int64_t i = 0; i < sub_dimensions; ++i) {
    const A factor = scaling == SubDimensionScaling::ones ? A{1} : alpha * p(logits[i]);
    factors[i] = on.contains(i) ? factor : A{0};
  }
}

/// Writes the gradient of one token's logits from the gradient of its factors; d_factors of inactive sub-dimensions are
/// ignored.
template <class A>
LYCEUM_HOST_DEVICE void factors_gradient(const A* logits, std::int64_t sub_dimensions, const ActiveSubDimensions& on,
                                         SubDimensionScaling scaling, const A* d_factors, A* d_logits) {
  const SubDimensionSoftmax<A> p(logits, sub_dimensions, on);
  const A n = static_cast<A>(sub_dimensions);
  A dot = 0;  // Σ_on d_i p_i
  for (std::int64_t i = 0; i < sub_dimensions; ++i) dot += on.contains(i) ? d_factors[i] * p(logits[i]) : A{0};
  for (std::int64_t i = 0; i < sub_dimensions; ++i) {
    const bool is_on = on.contains(i);
    const A own = p(logits[i]), d = is_on ? d_factors[i] : A{0};
    A slope = 0;
    switch (scaling) {
      case SubDimensionScaling::restore: slope = is_on ? n / p.on * own * (d - dot / p.on) : A{0}; break;
      case SubDimensionScaling::none: slope = own * (d - dot); break;
      // dL/dp_m = n · (P d_m + dot) for an active m, else 0. Σ_m p_m dL/dp_m = n · 2 P dot.
      case SubDimensionScaling::printed: slope = own * n * ((is_on ? p.on * d + dot : A{0}) - 2 * p.on * dot); break;
      case SubDimensionScaling::ones: break;
    }
    d_logits[i] = slope;
  }
}

}  // namespace lyceum
