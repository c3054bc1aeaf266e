#include "core/round_up.h"
#include "kernels/checks.h"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scan.cuh"
#include "kernels/cuda/segments.cuh"
#include "kernels/permute.h"
#include "kernels/split_pairs.h"

namespace lyceum {

namespace {

constexpr int place_threads = 256;

__device__ std::int64_t rows_of(const PlaceInSegments& place, std::int64_t part) {
  return place.arrived[part + 1] - place.arrived[part];
}

/// Computes the number of rows and the begin of every segment, with one thread block. Segments without room are cut, so
/// that later kernels stay inside their memory until the host finds the fault.
__global__ void __launch_bounds__(place_threads)
    place_segments(PlaceInSegments place, std::int64_t sources, IndexCheck wanted, IndexCheck end) {
  const auto experts = static_cast<std::int64_t>(place.rows.size());
  const auto all = static_cast<std::int64_t>(place.arrived_of_segment.size());
  const std::int64_t room = all - all % Segments::alignment;
  std::int64_t placed = 0;
  for (std::int64_t base = 0; base < experts; base += place_threads) {
    const std::int64_t e = base + threadIdx.x;
    std::int64_t rows = 0;
    for (std::int64_t s = 0; e < experts && s < sources; ++s) rows += rows_of(place, s * experts + e);
    if (e < experts && !place.wanted.empty()) wanted.equals(rows, place.wanted[e]);
    if (e < experts && place.most >= 0 && !wanted.at_most(rows, place.most)) rows = place.most;
    std::int64_t total = 0;
    const std::int64_t padded = round_up(rows, Segments::alignment);
    const std::int64_t before = exclusive_sum<place_threads>(padded, total);
    if (e < experts && place.fixed.empty()) {
      place.begin[e] = placed + before < room ? placed + before : room;
      place.rows[e] = rows < room - place.begin[e] ? rows : room - place.begin[e];
    } else if (e < experts) {
      const std::int64_t length = place.fixed[e + 1] - place.fixed[e];
      place.begin[e] = place.fixed[e];
      place.rows[e] = wanted.at_most(rows, length) ? rows : length;
    }
    placed += total;
  }
  if (threadIdx.x > 0) return;
  if (place.fixed.empty()) {
    place.begin[experts] = end.passes(placed) ? placed : room;
  } else {
    place.begin[experts] = place.fixed[experts];
  }
}

/// Writes both maps between arrived rows and rows of segments. One thread per row of the segments, in a grid-stride
/// loop.
__global__ void __launch_bounds__(place_threads)
    place_rows(PlaceInSegments place, std::int64_t sources, IndexCheck arrived) {
  const auto experts = static_cast<std::int64_t>(place.rows.size());
  const auto all = static_cast<std::int64_t>(place.arrived_of_segment.size());
  const Segments segments{place.begin, place.rows};
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * place_threads;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * place_threads + threadIdx.x; row < all;
       row += stride) {
    std::int64_t from = -1;
    if (row < place.begin[experts]) {
      const std::int64_t e = segment_of(segments, row);
      std::int64_t left = row - place.begin[e];
      for (std::int64_t s = 0; left >= 0 && s < sources; ++s) {
        const std::int64_t part = s * experts + e, rows = rows_of(place, part);
        if (left < rows) from = place.arrived[part] + left;
        left -= rows;
      }
    }
    place.arrived_of_segment[row] = from;
    if (from >= 0 && arrived.passes(from)) place.segment_of_arrived[from] = row;
  }
}

__global__ void __launch_bounds__(place_threads) compose_indices(ComposeIndices compose, IndexCheck map) {
  const auto count = static_cast<std::int64_t>(compose.y.size());
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * place_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * place_threads + threadIdx.x; i < count; i += stride) {
    const std::int64_t at = compose.map[i];
    compose.y[i] = at >= 0 && map.passes(at) ? compose.through[at] : -1;
  }
}

__global__ void __launch_bounds__(place_threads) split_pairs(SplitPairs split) {
  const auto here = static_cast<std::int64_t>(split.in_slots.size()),
             there = static_cast<std::int64_t>(split.by_token.size());
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * place_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * place_threads + threadIdx.x; i < here + there;
       i += stride) {
    if (i < here) {
      split.in_slots[i] = part_in_slots(split, i);
    } else {
      split.by_token[i - here] = part_by_token(split, i - here);
    }
  }
}

}  // namespace

void run(const CudaStream& stream, const PlaceInSegments& place) {
  const std::int64_t experts = std::ssize(place.rows),
                     sources = experts ? (std::ssize(place.arrived) - 1) / experts : 0;
  require_length("PlaceInSegments", "arrived", place.arrived, sources * experts + 1);
  require_length("PlaceInSegments", "begin", place.begin, experts + 1);
  if (!place.wanted.empty()) require_length("PlaceInSegments", "wanted", place.wanted, experts);
  if (!place.fixed.empty()) require_length("PlaceInSegments", "fixed", place.fixed, experts + 1);
  start(stream, "PlaceInSegments", place_segments, 1, place_threads, place, sources,
        IndexCheck(stream, "PlaceInSegments", "the number of rows of a segment", 0, 0),
        IndexCheck(stream, "PlaceInSegments", "the end of the last segment", 0,
                   std::ssize(place.arrived_of_segment) + 1));
  start(stream, "PlaceInSegments", place_rows, blocks_for(std::ssize(place.arrived_of_segment), place_threads),
        place_threads, place, sources,
        IndexCheck(stream, "PlaceInSegments", "arrived", 0, std::ssize(place.segment_of_arrived)));
}

void run(const CudaStream& stream, const ComposeIndices& compose) {
  const std::int64_t count = std::ssize(compose.y);
  require_length("ComposeIndices", "map", compose.map, count);
  start(stream, "ComposeIndices", compose_indices, blocks_for(count, place_threads), place_threads, compose,
        IndexCheck(stream, "ComposeIndices", "map", 0, std::ssize(compose.through)));
}

void run(const CudaStream& stream, const SplitPairs& split) {
  require_fitting(split);
  const std::int64_t all = std::ssize(split.in_slots) + std::ssize(split.by_token);
  start(stream, "SplitPairs", split_pairs, blocks_for(all, place_threads), place_threads, split);
}

}  // namespace lyceum
