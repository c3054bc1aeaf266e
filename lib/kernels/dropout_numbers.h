#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/random.h"
#include "kernels/checks.h"
#include "kernels/cuda/host_device.h"
#include "kernels/dropout.h"
#include "kernels/logistic.h"

namespace lyceum {

/// Returns the Philox key of dropout, which differs from the keys of other uses of the same seed.
constexpr std::uint64_t dropout_key(std::uint64_t seed) { return splitmix64(seed ^ 0x64726f706f7574u); }

/// Returns the counter of the Philox block whose words belong to columns [4 · quad, 4 · quad + 4) of a token.
/// `position`: random_position() of a token.
LYCEUM_HOST_DEVICE std::array<std::uint32_t, 4> dropout_counter(std::int64_t site, std::uint32_t step,
                                                                std::int64_t position, std::int64_t quad) {
  const auto at = static_cast<std::uint64_t>(position);
  return {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32 << 16 | static_cast<std::uint64_t>(site)),
          step, static_cast<std::uint32_t>(quad)};
}
/// Returns the words of this block. `key`: dropout_key().
LYCEUM_HOST_DEVICE std::array<std::uint32_t, 4> dropout_words(std::uint64_t key, std::int64_t site, std::uint32_t step,
                                                              std::int64_t position, std::int64_t quad) {
  return philox4x32(dropout_counter(site, step, position, quad),
                    {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
}

/// Returns the position of a token in the sequence of random numbers. Before the position of the first token of a
/// sequence there are block - 1 positions, for runs that begin before the sequence.
LYCEUM_HOST_DEVICE std::int64_t random_position(const DropoutMask& mask, std::int64_t token) {
  return mask.block == 1 ? token : token + (token / mask.seq_len + 1) * (mask.block - 1);
}
/// True if the token is the first one of its sequence.
LYCEUM_HOST_DEVICE bool begins_sequence(const DropoutMask& mask, std::int64_t token) {
  return token % mask.seq_len == 0;
}
/// Returns the number of tokens that the current run still drops, this token included; 0 if no run is in progress.
/// `left`: the result for the previous token. `word`: the random word of this token's position. `begins`:
/// run_threshold().
LYCEUM_HOST_DEVICE std::int32_t next_in_run(std::int32_t left, std::uint32_t word, std::uint32_t begins,
                                            std::int32_t block) {
  return word < begins ? block : left - (left > 0 ? 1 : 0);
}

/// Returns the number below which a random word begins a run of dropped tokens.
inline std::uint32_t run_threshold(double rate, std::int64_t block) {
  const double begins = block == 1 ? rate : -std::expm1(std::log1p(-rate) / static_cast<double>(block));
  return static_cast<std::uint32_t>(std::min(std::round(begins * 0x1p32), 0x1p32 - 1));
}

/// A rate p that is learnt, by its logit.
template <class A>
struct LearntRate {
  A odds, rate, scale;  // p / (1 − p), p and 1 / (1 − p)

  LYCEUM_HOST_DEVICE explicit LearntRate(A logit)
      : odds(std::exp(logit)), rate(logit < 0 ? odds / (1 + odds) : 1 / (1 + 1 / odds)), scale(1 + odds) {}
  /// Returns 1 − z for the random word of an element: with 1/t = 10, z is r¹⁰ / (1 + r¹⁰) for r = p / (1 − p) · u /
  /// (1 − u). u is (word + 1/2) / 2³², so that neither u nor 1 − u is 0.
  LYCEUM_HOST_DEVICE A kept(std::uint32_t word) const {
    const A r = odds * (static_cast<A>(word) + A(0.5)) / (static_cast<A>(~word) + A(0.5));
    const A square = r * r, fifth = square * square * r;
    return 1 / (1 + fifth * fifth);
  }
  /// Returns the logarithmic derivative of (1 − z) / (1 − p) with respect to the logit, from 1 − z.
  LYCEUM_HOST_DEVICE A slope(A kept) const { return rate - 10 * (1 - kept); }
};

/// Returns p log p + (1 − p) log(1 − p), the negative entropy of a rate, from its logit.
template <class A>
LYCEUM_HOST_DEVICE A negative_entropy(A logit) {
  return logistic(logit) * logit - softplus(logit);
}
/// Returns its derivative with respect to the logit.
template <class A>
LYCEUM_HOST_DEVICE A slope_of_negative_entropy(A logit) {
  return logit * logistic(logit) * logistic(-logit);
}

/// Throws an Error unless `step` has one element and the other members are in range. Used by all devices.
inline void require_fitting(const char* kernel, const DropoutMask& mask) {
  constexpr std::int64_t most_sites = std::int64_t{1} << 16, most_tokens = std::int64_t{1} << 37;
  require(mask.site >= 0 && mask.site < most_sites && mask.first >= 0 && mask.first < most_tokens && mask.block >= 1 &&
              mask.block <= most_dropped_tokens && (mask.block == 1 || mask.seq_len >= 1),
          "{}: no mask is defined for site {}, token {}, block {} and sequences of {}", kernel, mask.site, mask.first,
          mask.block, mask.seq_len);
  require_length(kernel, "step", mask.step, 1);
}
template <class T>
void require_fitting(const ApplyDropout<T>& dropout) {
  require_extents("ApplyDropout", "x", dropout.x, dropout.y.rows, dropout.y.cols);
  require(dropout.rate >= 0 && dropout.rate < 1, "ApplyDropout: the rate is {}, but must be in [0, 1)", dropout.rate);
  require_fitting("ApplyDropout", dropout.mask);
}
template <class T>
void require_fitting(const ApplyConcreteDropout<T>& dropout) {
  require_extents("ApplyConcreteDropout", "x", dropout.x, dropout.y.rows, dropout.y.cols);
  require_length("ApplyConcreteDropout", "logit", dropout.logit, 1);
  require(dropout.mask.block == 1, "ApplyConcreteDropout: block is {}, but must be 1", dropout.mask.block);
  require_fitting("ApplyConcreteDropout", dropout.mask);
}
template <class T>
void require_fitting(const ConcreteDropoutGrad<T>& grad) {
  require_extents("ConcreteDropoutGrad", "dy", grad.dy, grad.x.rows, grad.x.cols);
  require_length("ConcreteDropoutGrad", "logit", grad.logit, 1);
  require_length("ConcreteDropoutGrad", "d_logit", grad.d_logit, grad.x.rows);
  require(grad.mask.block == 1, "ConcreteDropoutGrad: block is {}, but must be 1", grad.mask.block);
  require_fitting("ConcreteDropoutGrad", grad.mask);
}
template <class T>
void require_fitting(const ConcreteRegulariser<T>& regulariser) {
  require_length("ConcreteRegulariser", "logit", regulariser.logit, 1);
  require_length("ConcreteRegulariser", "squares", regulariser.squares, 1);
  require_length("ConcreteRegulariser", "loss", regulariser.loss, 1);
}
template <class T>
void require_fitting(const ConcreteRegulariserBackward<T>& backward) {
  require_length("ConcreteRegulariserBackward", "logit", backward.logit, 1);
  require_length("ConcreteRegulariserBackward", "squares", backward.squares, 1);
  require_length("ConcreteRegulariserBackward", "d_loss", backward.d_loss, 1);
  if (!backward.d_squares.empty()) {
    require_length("ConcreteRegulariserBackward", "d_squares", backward.d_squares, 1);
  }
  if (!backward.d_logit.empty()) require_length("ConcreteRegulariserBackward", "d_logit", backward.d_logit, 1);
}

/// Compute the regulariser and its gradients, on the CPU or in one thread of a GPU.
template <class A, class T>
LYCEUM_HOST_DEVICE void compute(const ConcreteRegulariser<T>& regulariser, A logit) {
  regulariser.loss[0] = static_cast<A>(regulariser.norm_factor) * regulariser.squares[0] * (1 + std::exp(logit)) +
                        static_cast<A>(regulariser.entropy_factor) * negative_entropy(logit);
}
template <class A, class T>
LYCEUM_HOST_DEVICE void compute(const ConcreteRegulariserBackward<T>& backward, A logit) {
  const A d_loss = backward.d_loss[0], of_norm = static_cast<A>(backward.norm_factor);
  if (!backward.d_squares.empty()) backward.d_squares[0] = d_loss * of_norm * (1 + std::exp(logit));
  if (!backward.d_logit.empty()) {
    backward.d_logit[0] += d_loss * (of_norm * backward.squares[0] * std::exp(logit) +
                                     static_cast<A>(backward.entropy_factor) * slope_of_negative_entropy(logit));
  }
}

}  // namespace lyceum
