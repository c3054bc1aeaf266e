#pragma once

#include <span>
#include <type_traits>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// A stable counting sort of (token, choice) pairs by expert. Pair p is token · k + choice; slot s is a position in the
/// sorted order. slot_pair[s] is the pair in slot s, and pair_slot is the inverse. A choice without an expert in
/// `order` (−1, or an index of the `others`) has no slot: pair_slot is −1, and the unused slots at the end have
/// slot_pair −1.
struct SortByExpert {
  Matrix<const std::int32_t> index;  // [tokens, k]: experts in [0, choices()), or −1
  /// [experts]: a permutation of [0, experts), the order in which experts get slots (by owner rank, then by index).
  std::span<const std::int32_t> order;
  std::span<std::int64_t> begin;  // [experts + 1]: first slot of expert order[i]; the last one: number of used slots
  std::span<std::int64_t> slot_pair;  // [tokens · k]
  std::span<std::int64_t> pair_slot;  // [tokens · k]
  std::int64_t others = 0;            // number of further experts, with indices after those of `order`: without slots
  /// [experts], host memory: average number of slots of expert order[i]. Only a rehearsal reads it; if empty, it takes
  /// all experts as chosen equally often.
  std::span<const double> expected = {};

  /// Returns the number of experts that may be chosen.
  constexpr std::int64_t choices() const { return static_cast<std::int64_t>(order.size()) + others; }
};

/// Computes where received rows belong in Segments. Rows arrive sorted by source rank, then expert. In the segments
/// they are sorted by expert, then source rank, with padding. With `fixed`, the segments begin at given rows, whose
/// distances need not be multiples of Segments::alignment.
struct PlaceInSegments {
  std::span<const std::int64_t> arrived;  // [sources · experts + 1]: first row of source s for expert e at s·experts+e
  std::span<std::int64_t> begin, rows;    // [experts + 1], [experts]: the results, see Segments
  /// Arrived row of each segment row; −1 for padding and after the last segment. Its length must be at least
  /// begin[experts], for example arrived rows + experts · (Segments::alignment − 1).
  std::span<std::int64_t> arrived_of_segment;
  std::span<std::int64_t> segment_of_arrived;  // [arrived rows, or more]: the inverse; further elements are not written
  /// [experts]: the values that `rows` must have. If they differ, run() throws an Error on the CPU; on a GPU, the next
  /// CudaStream::synchronise() does. Empty: not checked.
  std::span<const std::int64_t> wanted = {};
  /// [experts + 1]: the values of `begin`, in ascending order from 0; the last one is at most the length of
  /// arrived_of_segment. A segment that is too short for its rows is an error, reported as for `wanted`. Empty: each
  /// segment begins after the one before it.
  std::span<const std::int64_t> fixed = {};
  /// The largest allowed number of rows of a segment; −1: no limit. More rows are an error, reported as for `wanted`.
  /// On a GPU, kernels that run before the error is reported see segments cut to this limit and to the length of
  /// arrived_of_segment.
  std::int64_t most = -1;
};

/// Composes two index maps: y[i] = through[map[i]], or −1 if map[i] is negative. y may be map.
struct ComposeIndices {
  std::span<const std::int64_t> map, through;
  std::span<std::int64_t> y;
};

/// Maps between two orders of partial rows. Each row of a (token, choice) pair is cut into `parts` equal parts.
///   Order by slot:   part g of the row in slot s has index s · parts + g.
///   Order by token:  part g of choice j of token t has index (t · parts + g) · k + j. The parts g of all choices of a
///                    token are adjacent in this order.
/// Both maps are −1 for a pair without a slot or a slot without a pair.
struct SplitPairs {
  std::span<const std::int64_t> slot_of_pair;  // [tokens · k]: slot or −1; pair = token · k + choice
  std::span<const std::int64_t> pair_of_slot;  // [slots]: pair or −1
  std::int64_t k, parts;
  std::span<std::int64_t> in_slots;  // [tokens · parts · k]: from the order by token to the order by slot
  std::span<std::int64_t> by_token;  // [slots · parts]: from the order by slot to the order by token
};

/// y[r] = x[source[r] / divisor], or zeros if source[r] is negative. T may also be std::int32_t, for indices of
/// experts; these are then −1, no expert, instead of zero.
template <class T>
struct GatherRows {
  Matrix<const T> x;
  std::span<const std::int64_t> source;  // [y.rows]
  Matrix<T> y;
  std::int64_t divisor = 1;

  /// Returns the elements of rows without a source.
  static constexpr T none() {
    if constexpr (std::is_same_v<T, std::int32_t>) {
      return -1;
    } else {
      return T{};
    }
  }
};

/// y[t] = Σ_j gate[t, j] · x[slot[t · k + j]], in the order of j; all gates are 1 if `gate` is empty. A negative slot
/// is a dropped pair and adds nothing.
template <class T>
struct CombineRows {
  Matrix<const T> x;                   // [slots, hidden]
  std::span<const std::int64_t> slot;  // [tokens · k]
  std::int64_t k;
  Matrix<const Accumulator<T>> gate;  // [tokens, k] or empty
  Matrix<T> y;                        // [tokens, hidden]
};

/// Gradients of CombineRows: dx[slot] = gate · dy[t], d_gate[t, j] = dy[t] · x[slot], or 0 for a dropped pair. No slot
/// may occur twice. Rows of dx that no slot refers to (padding) become zero. Without gates, d_gate is not written.
template <class T>
struct CombineRowsBackward {
  Matrix<const T> x, dy;  // as x and y of CombineRows
  std::span<const std::int64_t> slot;
  std::int64_t k;
  Matrix<const Accumulator<T>> gate;
  Matrix<T> dx;                   // like x
  Matrix<Accumulator<T>> d_gate;  // like gate
};

void run(const CpuStream& stream, const SortByExpert& sort);
/// Writes only `begin`, from `expected`, or as if every expert were chosen equally often. The sizes of later messages
/// and products of a rehearsal depend on it.
void run(const RehearsalStream& stream, const SortByExpert& sort);
void run(const CpuStream& stream, const PlaceInSegments& place);
void run(const CpuStream& stream, const ComposeIndices& compose);
void run(const CpuStream& stream, const SplitPairs& split);
template <class T>
void run(const CpuStream& stream, const GatherRows<T>& gather);
template <class T>
void run(const CpuStream& stream, const CombineRows<T>& combine);
template <class T>
void run(const CpuStream& stream, const CombineRowsBackward<T>& combine);

void run(const CudaStream& stream, const SortByExpert& sort);
void run(const CudaStream& stream, const PlaceInSegments& place);
void run(const CudaStream& stream, const ComposeIndices& compose);
void run(const CudaStream& stream, const SplitPairs& split);
template <class T>
void run(const CudaStream& stream, const GatherRows<T>& gather);
template <class T>
void run(const CudaStream& stream, const CombineRows<T>& combine);
template <class T>
void run(const CudaStream& stream, const CombineRowsBackward<T>& combine);

#define LYCEUM_PERMUTE_KERNELS(INSTANCE) \
  INSTANCE(GatherRows<std::int32_t>)     \
  LYCEUM_FLOATS(INSTANCE, GatherRows)    \
  LYCEUM_FLOATS(INSTANCE, CombineRows)   \
  LYCEUM_FLOATS(INSTANCE, CombineRowsBackward)

}  // namespace lyceum
