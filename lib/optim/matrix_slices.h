#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/parameter.h"
#include "core/range.h"
#include "optim/weight_rule.h"

namespace lyceum {

/// The part of a matrix that a rank holds: a rectangle of it, in the flat memory of a unit. The matrix is a logical
/// tensor that Muon updates as a whole.
struct MatrixSlice {
  std::int64_t rows, cols;  // of the whole matrix
  std::int64_t first;       // element of the unit at which the slice begins
  std::int64_t pitch;       // elements from one row to the next in memory
  std::int64_t row, col;    // position of the slice in the matrix
  std::int64_t own_rows, own_cols;
  /// Relative position of the matrix in the unit, 0 to 1: the elements of all whole tensors of the unit that precede
  /// the middle of the whole matrix, divided by the elements of all of them. Equal on all ranks that hold parts of the
  /// unit.
  double place;

  std::int64_t elements() const { return rows * cols; }
  bool operator==(const MatrixSlice&) const = default;
};

/// Returns the slices of the matrices that Muon updates, in the order of the unit. A slice may be empty: ranks that
/// share a unit have slices of the same matrices.
std::vector<MatrixSlice> matrix_slices(const RuleAssignment& rules, const ParameterUnit& unit);

/// A rectangle of a matrix that is contiguous row by row in the memory of a unit.
struct HeldRows {
  std::int64_t first, stride;         // first element in the unit, and elements from one row to the next
  std::int64_t row, col, rows, cols;  // position in the whole matrix, and extents
};
/// Returns the elements of a slice that are among elements `range` of the unit, in order; at most three rectangles.
std::vector<HeldRows> held_rows(const MatrixSlice& slice, const Range& range);

/// Returns the FLOPs of orthogonalising a matrix: 5 · (4 k² n + 2 k³) with k = min(rows, cols), n = max(rows, cols).
double newton_schulz_flops(std::int64_t rows, std::int64_t cols);

/// The distribution of the units of one group over its ranks. Rank copy · sharers + sharer holds copy number `copy` of
/// part number `sharer`.
struct MatrixSharing {
  int copies = 1;        // ranks that hold copies of the same slices
  int sharers = 1;       // ranks that hold other slices of the same matrices
  bool sharded = false;  // the copies divide the updates of a unit among them (ZeRO 1 to 3)

  int ranks() const { return copies * sharers; }
  int copy_of(int rank) const { return rank / sharers; }
  int sharer_of(int rank) const { return rank % sharers; }
  /// True if the copies have the same updates and every rank has whole matrices, so that one all-gather returns them.
  bool gathers() const { return copies > 1 && sharers == 1 && !sharded; }
  bool operator==(const MatrixSharing&) const = default;
};

/// Chooses for each matrix the rank that orthogonalises it, so that FLOPs are balanced: with ZeRO the rank that holds
/// about the middle of the matrix, as long as its FLOPs do not exceed the average over ranks, else the rank that has
/// least. Depends on its arguments only, which are equal on all ranks. `loads` [ranks]: FLOPs of earlier choices, to
/// which those of these matrices are added.
std::vector<int> choose_owners(std::span<const MatrixSlice> matrices, const MatrixSharing& sharing,
                               std::span<double> loads);

}  // namespace lyceum
