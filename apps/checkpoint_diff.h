#pragma once

#include "io/checkpoint/checkpoint.h"

namespace lyceum {

/// The difference between two tensors of equal shape.
struct TensorDifference {
  std::int64_t elements = 0;
  std::int64_t equal = 0;   // number of elements with equal bits
  double max_absolute = 0;  // maximum of |a − b|; NaN if one of two different elements is NaN
  double max_relative = 0;  // maximum of |a − b| / max(|a|, |b|); NaN in the same case, and if one of them is infinite
};

/// Compares a tensor that two checkpoints have with the same shape. Reads slabs of rows, so memory is bounded. Throws
/// the errors of CheckpointReader.
TensorDifference difference(const CheckpointReader& a, const CheckpointReader& b, const CheckpointReader::Entry& entry);

/// Implements `lyceum checkpoint diff A B`: prints the tensors that differ (with `all` every tensor) and a summary.
/// Returns 0 if both have the same tensors with the same bits, else 1. Throws a bad_input Error if a file of a
/// checkpoint is missing or has the wrong size.
int print_differences(const CheckpointReader& a, const CheckpointReader& b, bool all);

}  // namespace lyceum
