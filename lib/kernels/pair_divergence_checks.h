#pragma once

#include "kernels/cross_entropy_checks.h"
#include "kernels/cuda/host_device.h"
#include "kernels/pair_divergence.h"

namespace lyceum {

/// Returns the row of the first copy of a pair. The row of the second one is seq_len rows further on.
LYCEUM_HOST_DEVICE std::int64_t first_row_of(std::int64_t pair, std::int64_t seq_len) {
  return pair + pair / seq_len * seq_len;
}

/// The logits' gradients of the two copies of a token.
template <class A>
struct PairGradients {
  A first, second;
};

/// The numbers that the gradients of all words of a pair share.
template <class A>
struct PairSlopes {
  A first_log_sum, second_log_sum;  // log Σ exp of the logits
  A first_slope, second_slope;      // factors of p and q in the gradient of the cross-entropies and the z-losses
  A scale;                          // is subtracted from the gradient of the target
  A half;                           // half the factor of the divergence
  A first_kl, second_kl;            // KL(p‖q) and KL(q‖p)

  /// Returns the gradients of one word. p and q: its probabilities; a and b: its logits.
  LYCEUM_HOST_DEVICE PairGradients<A> gradients(A p, A q, A a, A b, bool is_target) const {
    const A d = (a - first_log_sum) - (b - second_log_sum), of_target = is_target ? scale : A{0};
    return {first_slope * p - of_target + half * (p * (d - first_kl) + (p - q)),
            second_slope * q - of_target + half * (q * (-d - second_kl) + (q - p))};
  }
};

/// Returns the slopes of a pair whose first copy is in row `row`. scale, z_scale, pair_scale: values of these members.
template <class T, class A = Accumulator<T>>
LYCEUM_HOST_DEVICE PairSlopes<A> slopes_of(const PairedCrossEntropyBackward<T>& loss, std::int64_t pair,
                                           std::int64_t row, A scale, A z_scale, A pair_scale) {
  const A first = loss.log_sum_exp[static_cast<std::size_t>(row)];
  const A second = loss.log_sum_exp[static_cast<std::size_t>(row + loss.seq_len)];
  const A first_kl = loss.sums.row(1)[pair];
  return {.first_log_sum = first,
          .second_log_sum = second,
          .first_slope = scale + z_scale * (A{2} * first),
          .second_slope = scale + z_scale * (A{2} * second),
          .scale = scale,
          .half = A(0.5) * pair_scale,
          .first_kl = first_kl,
          .second_kl = A{2} * loss.sums.row(0)[pair] - first_kl};
}

/// Throws an Error unless the operands fit together. Used by all devices.
inline void require_pairs(const char* kernel, std::int64_t tokens, std::int64_t seq_len) {
  require(seq_len > 0 && tokens % (2 * seq_len) == 0, "{}: {} tokens are not pairs of sequences of {}", kernel, tokens,
          seq_len);
}
template <class T>
void require_fitting(const PairDivergence<T>& divergence) {
  const std::int64_t rows = divergence.logits.rows;
  require_pairs("PairDivergence", rows, divergence.seq_len);
  require_length("PairDivergence", "targets", divergence.targets, rows);
  require_length("PairDivergence", "log_sum_exp", divergence.log_sum_exp, rows);
  require_extents("PairDivergence", "sums", divergence.sums, 2, rows / 2);
}
template <class T>
void require_fitting(const PairedCrossEntropyBackward<T>& loss) {
  require_fitting(CrossEntropyBackward<T>{.logits = loss.logits,
                                          .targets = loss.targets,
                                          .log_sum_exp = loss.log_sum_exp,
                                          .scale = loss.scale,
                                          .d_logits = loss.d_logits,
                                          .first = loss.first,
                                          .vocab = loss.vocab,
                                          .z_scale = loss.z_scale});
  const std::int64_t rows = loss.logits.rows;
  require_pairs("PairedCrossEntropyBackward", rows, loss.seq_len);
  require_extents("PairedCrossEntropyBackward", "sums", loss.sums, 2, rows / 2);
  require_length("PairedCrossEntropyBackward", "pair_scale", loss.pair_scale, 1);
}

}  // namespace lyceum
