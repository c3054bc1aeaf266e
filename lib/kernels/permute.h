#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// A stable counting sort of (token, choice) pairs by expert. Slot s of the sorted order came from pair
/// slot_pair[s] = token · k + choice; pair p went to slot pair_slot[p]; expert e's slots begin at begin[e]. A choice of
/// expert −1, or of one that `order` does not have, is none: its pair's slot is −1, and as many slots at the end came
/// from pair −1.
struct SortByExpert {
  Matrix<const std::int32_t> index;     // [tokens, k]: experts below choices(), or −1
  std::span<const std::int32_t> order;  // [experts]: experts in the order of their slots (by owner rank, then by index)
  std::span<std::int64_t> begin;        // [experts + 1], by position in `order`; the last one: how many slots are used
  std::span<std::int64_t> slot_pair;    // [tokens · k]
  std::span<std::int64_t> pair_slot;    // [tokens · k]
  std::int64_t others = 0;              // experts that may be chosen, behind those of `order`
  /// The host's, by position in `order`: slots of each expert on average, where a rehearsal cannot take all experts
  /// as chosen equally often.
  std::span<const double> expected = {};

  constexpr std::int64_t choices() const { return static_cast<std::int64_t>(order.size()) + others; }
};

/// Rows that arrive grouped by source, then expert, into segments sorted by expert, then source, with padding
/// (Segments).
struct PlaceInSegments {
  std::span<const std::int64_t> arrived;       // [sources · experts + 1]: where a source's rows for an expert begin
  std::span<std::int64_t> begin, rows;         // of the segments: [experts + 1], [experts]
  std::span<std::int64_t> arrived_of_segment;  // [≥ begin[experts]]; −1 for padding, and behind the last segment
  std::span<std::int64_t> segment_of_arrived;  // [arrived rows]
};

/// y[i] = through[map[i]], or −1 where map[i] is negative; y may be map.
struct ComposeIndices {
  std::span<const std::int64_t> map, through;
  std::span<std::int64_t> y;
};

/// Rows of pairs, token · k + choice, are cut into equal parts, and part g of all choices of a token lie side by side
/// elsewhere: part g of the row in slot s there is part (token · parts + g) · k + choice here. Both maps of parts, −1
/// where a pair has no slot and a slot no pair.
struct SplitPairs {
  std::span<const std::int64_t> slot_of_pair;  // [tokens · k]
  std::span<const std::int64_t> pair_of_slot;  // [slots]
  std::int64_t k, parts;
  std::span<std::int64_t> in_slots;  // [tokens · parts · k]: for each part here, slot · parts + g
  std::span<std::int64_t> by_token;  // [slots · parts]: for each part there, (token · parts + g) · k + choice
};

/// y[r] = x[source[r] / divisor], or zeros where source[r] is negative. Of numbers of experts (i32) as well.
template <class T>
struct GatherRows {
  Matrix<const T> x;
  std::span<const std::int64_t> source;  // [y.rows]
  Matrix<T> y;
  std::int64_t divisor = 1;
};

/// y[t] = Σ_j gate[t, j] · x[slot[t · k + j]], j in order; without gates (an empty matrix) a plain sum. A negative slot
/// is a dropped pair and adds nothing.
template <class T>
struct CombineRows {
  Matrix<const T> x;                   // [slots, hidden]
  std::span<const std::int64_t> slot;  // [tokens · k]
  std::int64_t k;
  Matrix<const Accumulator<T>> gate;  // [tokens, k] or empty
  Matrix<T> y;                        // [tokens, hidden]
};

/// Gradients of CombineRows: dx[slot] = gate · dy[t], d_gate[t, j] = dy[t] · x[slot], 0 for a dropped pair. No slot may
/// occur twice; rows of dx that no slot names (padding) become zero. Without gates d_gate is not touched.
template <class T>
struct CombineRowsBackward {
  Matrix<const T> x, dy;
  std::span<const std::int64_t> slot;
  std::int64_t k;
  Matrix<const Accumulator<T>> gate;
  Matrix<T> dx;
  Matrix<Accumulator<T>> d_gate;
};

void run(const CpuStream& stream, const SortByExpert& sort);
/// As if every expert were chosen equally often, or as expected: how many rows travel depends on it.
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
