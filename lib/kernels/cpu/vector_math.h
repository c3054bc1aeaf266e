#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/logistic.h"

namespace lyceum {

/// Returns exp(x) to 1.5 ulp, without branches or calls, so that compilers can vectorize loops over it. NaN gives NaN,
/// +inf and overflow give +inf, -inf and underflow give 0; results below the smallest normal number are denormals.
/// Computed as 2^n · e^r with x = n·ln 2 + r, |r| <= ln 2 / 2 [Cody & Waite 1980]; e^r by the minimax polynomial of the
/// Cephes library.
inline float fast_exp(float x) {
  constexpr float log2_e = 1.44269504088896341f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  constexpr float round_to_integer = 12582912.0f;  // 1.5 · 2^23: the sum's low mantissa bits are the integer
  x = x < -104.0f ? -104.0f : x;                   // comparisons in this direction keep NaN
  x = x > 89.0f ? 89.0f : x;
  const float shifted = x * log2_e + round_to_integer;
  const float n = shifted - round_to_integer;
  const float r = (x - n * ln2_high) - n * ln2_low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r * r + r) + 1.0f;
  // 2^n is a product of two factors, because n may exceed the exponents of normal numbers (n is in [-150, 129] unless x
  // is NaN).
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(round_to_integer);
  const std::int32_t half = exponent >> 1;
  const float first = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  const float second = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - half + 127) << 23);
  return p * first * second;
}

inline double fast_exp(double x) { return std::exp(x); }

/// Returns erfc(x) = 1 − erf(x), also without branches or calls. The relative error is at most 4e-7 for x up to 2, and
/// x² · 2e-7 for larger x. Computed as t · exp(−x² + p(t)) with t = 1 / (1 + x/2), and mirrored for x < 0 [Press et al.
/// 1992, 6.2].
inline float fast_erfc(float x) {
  const float z = std::abs(x), t = 1.0f / (1.0f + 0.5f * z);
  float p = 0.17087277f;
  p = p * t - 0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t - 1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t - 0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t - 1.26551223f;
  const float above = t * fast_exp(p - z * z);
  return x < 0 ? 2.0f - above : above;
}

inline double fast_erfc(double x) { return std::erfc(x); }

/// Return log(1 + exp(x)) to 4 ulp, and its derivative, the logistic function, to 3 ulp.
inline float fast_softplus(float x) { return (x > 0 ? x : 0) + fast_log1p(fast_exp(-std::abs(x))); }
inline float fast_logistic(float x) {
  const float e = fast_exp(-std::abs(x)), larger = 1 / (1 + e);
  return x < 0 ? e * larger : larger;
}

}  // namespace lyceum
