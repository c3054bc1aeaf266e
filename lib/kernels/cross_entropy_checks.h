#pragma once

#include "kernels/checks.h"
#include "kernels/cross_entropy.h"

namespace lyceum {

// Checks of operands, used by all devices: throw an Error unless their extents fit together. The values of targets are
// in device memory and are checked by the kernels.

template <class T>
void require_fitting(const CrossEntropyForward<T>& loss) {
  const std::int64_t rows = loss.logits.rows;
  require_length("CrossEntropyForward", "targets", loss.targets, rows);
  require_length("CrossEntropyForward", "loss", loss.loss, rows);
  require_length("CrossEntropyForward", "log_sum_exp", loss.log_sum_exp, rows);
  if (!loss.squares.empty()) require_length("CrossEntropyForward", "squares", loss.squares, rows);
  if (!loss.largest.empty()) require_length("CrossEntropyForward", "largest", loss.largest, rows);
}

template <class T>
void require_fitting(const CrossEntropyPart<T>& part) {
  const std::int64_t rows = part.logits.rows, cols = part.logits.cols;
  require_length("CrossEntropyPart", "targets", part.targets, rows);
  require_extents("CrossEntropyPart", "statistics", part.statistics, rows, 3);
  require(part.first >= 0 && part.first + cols <= part.vocab,
          "CrossEntropyPart: words [{}, {}) are not in a vocabulary of {}", part.first, part.first + cols, part.vocab);
}

template <class A>
void require_fitting(const CrossEntropyJoin<A>& join) {
  const std::int64_t rows = std::ssize(join.loss);
  require(rows == 0 || (join.statistics.rows > 0 && join.statistics.rows % rows == 0),
          "CrossEntropyJoin: {} rows of statistics do not match {} tokens", join.statistics.rows, rows);
  require_extents("CrossEntropyJoin", "statistics", join.statistics, join.statistics.rows, 3);
  require_length("CrossEntropyJoin", "targets", join.targets, rows);
  require_length("CrossEntropyJoin", "log_sum_exp", join.log_sum_exp, rows);
  if (!join.squares.empty()) require_length("CrossEntropyJoin", "squares", join.squares, rows);
  if (!join.largest.empty()) require_length("CrossEntropyJoin", "largest", join.largest, rows);
}

/// Returns the size of the whole vocabulary, which is the upper bound of the targets.
template <class T>
std::int64_t words_of(const CrossEntropyBackward<T>& loss) {
  return loss.vocab < 0 ? loss.first + loss.logits.cols : loss.vocab;
}

template <class T>
void require_fitting(const CrossEntropyBackward<T>& loss) {
  const std::int64_t rows = loss.logits.rows, cols = loss.logits.cols;
  require_extents("CrossEntropyBackward", "d_logits", loss.d_logits, rows, cols);
  require_length("CrossEntropyBackward", "targets", loss.targets, rows);
  require_length("CrossEntropyBackward", "log_sum_exp", loss.log_sum_exp, rows);
  require_length("CrossEntropyBackward", "scale", loss.scale, 1);
  if (!loss.z_scale.empty()) require_length("CrossEntropyBackward", "z_scale", loss.z_scale, 1);
  require(loss.first >= 0 && loss.first + cols <= words_of(loss),
          "CrossEntropyBackward: words [{}, {}) are not in a vocabulary of {}", loss.first, loss.first + cols,
          words_of(loss));
}

}  // namespace lyceum
