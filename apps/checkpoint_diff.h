#pragma once

#include "io/checkpoint/checkpoint.h"

namespace lyceum {

/// How far two tensors of one shape are apart.
struct TensorDifference {
  std::int64_t elements = 0;
  std::int64_t equal = 0;   // of the same bits
  double max_absolute = 0;  // |a − b|; NaN when an element that differs is NaN in one of them
  double max_relative = 0;  // |a − b| / max(|a|, |b|), likewise
};

/// Reads both, a slab at a time.
TensorDifference difference(const CheckpointReader& a, const CheckpointReader& b, const CheckpointReader::Entry& entry);

/// `lyceum checkpoint diff A B`: prints the tensors that differ (all of them with `all`) and a summary; 0 when both
/// hold the same tensors with the same bits, else 1.
int print_differences(const CheckpointReader& a, const CheckpointReader& b, bool all);

}  // namespace lyceum
