#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/host_device.h"
#include "kernels/piece_scaling.h"

namespace lyceum {

constexpr std::int64_t most_pieces = 64;  // of hidden

/// The pieces that are on, a bit each.
LYCEUM_HOST_DEVICE std::uint64_t pieces_on(std::int64_t always_on, const std::int32_t* chosen, std::int64_t k) {
  std::uint64_t on = always_on < 64 ? (std::uint64_t{1} << always_on) - 1 : ~std::uint64_t{0};
  for (std::int64_t j = 0; j < k; ++j) {
    if (chosen[j] >= 0) on |= std::uint64_t{1} << chosen[j];
  }
  return on;
}

/// Row of the pieces of all tokens that a pair, token · k + choice, is about; −1 of none. See PieceRows.
template <class Rows>
LYCEUM_HOST_DEVICE std::int64_t source_of(const Rows& rows, std::int64_t pair) {
  const std::int64_t k = rows.index.cols;
  return pair < 0 ? -1 : pair / k * rows.pieces + rows.index.row(pair / k)[pair % k];
}

/// Row of a token's piece among the rows of PlacePieces; −1 where it is no choice, or has no row.
template <class Place>
LYCEUM_HOST_DEVICE std::int64_t slot_of(const Place& place, std::int64_t t, std::int64_t piece) {
  const std::int64_t k = place.index.cols;
  for (std::int64_t j = 0; j < k; ++j) {
    if (place.index.row(t)[j] == piece) return place.slot[static_cast<std::size_t>(t * k + j)];
  }
  return -1;
}

/// The factors' gradient from the slopes of the shares c_i / Σ c of a token, see PieceLoad.
template <class A>
LYCEUM_HOST_DEVICE void share_slope(const A* factors, std::int64_t pieces, const double* slope, A* d_factors) {
  double sum = 0, dot = 0;
  for (std::int64_t i = 0; i < pieces; ++i) {
    sum += static_cast<double>(factors[i]);
    dot += static_cast<double>(factors[i]) * slope[i];
  }
  for (std::int64_t i = 0; i < pieces; ++i) d_factors[i] = static_cast<A>((slope[i] - dot / sum) / sum);
}

/// A token's softmax: exp(x_i − largest) / sum.
template <class A>
struct PieceSoftmax {
  A largest, inverse;  // 1 / sum
  A on = 0;            // P

  LYCEUM_HOST_DEVICE PieceSoftmax(const A* logits, std::int64_t pieces, std::uint64_t mask) : largest(logits[0]) {
    for (std::int64_t i = 1; i < pieces; ++i) {
      if (!(logits[i] <= largest)) largest = logits[i];  // keeps NaN
    }
    A sum = 0;
    for (std::int64_t i = 0; i < pieces; ++i) {
      const A e = std::exp(logits[i] - largest);
      sum += e;
      if (mask >> i & 1) on += e;
    }
    inverse = A{1} / sum;
    on *= inverse;
  }
  LYCEUM_HOST_DEVICE A operator()(A logit) const { return std::exp(logit - largest) * inverse; }
};

/// factors_i = α g_i for the pieces that are on, 0 for the others.
template <class A>
LYCEUM_HOST_DEVICE void factors_of(const A* logits, std::int64_t pieces, std::uint64_t on, PieceScaling scaling,
                                   A* factors) {
  const PieceSoftmax<A> p(logits, pieces, on);
  const A n = static_cast<A>(pieces);
  const A alpha = scaling == PieceScaling::restore ? n / p.on : scaling == PieceScaling::printed ? n * p.on : A{1};
  for (std::int64_t i = 0; i < pieces; ++i) {
    const A factor = scaling == PieceScaling::ones ? A{1} : alpha * p(logits[i]);
    factors[i] = on >> i & 1 ? factor : A{0};
  }
}

/// The logits' gradient from that of the factors.
template <class A>
LYCEUM_HOST_DEVICE void factors_slope(const A* logits, std::int64_t pieces, std::uint64_t on, PieceScaling scaling,
                                      const A* d_factors, A* d_logits) {
  const PieceSoftmax<A> p(logits, pieces, on);
  const A n = static_cast<A>(pieces);
  A dot = 0;  // Σ_on d_i p_i
  for (std::int64_t i = 0; i < pieces; ++i) dot += on >> i & 1 ? d_factors[i] * p(logits[i]) : A{0};
  for (std::int64_t i = 0; i < pieces; ++i) {
    const bool is_on = on >> i & 1;
    const A own = p(logits[i]), d = is_on ? d_factors[i] : A{0};
    A slope = 0;
    switch (scaling) {
      case PieceScaling::restore: slope = is_on ? n / p.on * own * (d - dot / p.on) : A{0}; break;
      case PieceScaling::none: slope = own * (d - dot); break;
      // dL/dp_m = n · (P d_m + dot) where m is on; its mean under p is n · 2 P dot
      case PieceScaling::printed: slope = own * n * ((is_on ? p.on * d + dot : A{0}) - 2 * p.on * dot); break;
      case PieceScaling::ones: break;
    }
    d_logits[i] = slope;
  }
}

}  // namespace lyceum
