#include "kernels/permute.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "core/round_up.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/segments.h"
#include "kernels/split_pairs.h"

namespace lyceum {

namespace {

constexpr std::int64_t tile = 512;  // columns summed at a time, in a buffer that fits the first-level cache
constexpr std::int64_t any_negative = std::numeric_limits<std::int64_t>::min();

/// Returns the position of each expert in `order`. Throws an Error unless `order` contains every expert once.
std::vector<std::size_t> positions_of(std::span<const std::int32_t> order) {
  require_indices("SortByExpert", "order", order, 0, static_cast<std::int64_t>(order.size()));
  std::vector<std::size_t> position(order.size(), order.size());
  for (std::size_t p = 0; p < order.size(); ++p) {
    const auto expert = static_cast<std::size_t>(order[p]);
    require(position[expert] == order.size(), "SortByExpert: expert {} occurs twice in the order", expert);
    position[expert] = p;
  }
  return position;
}

/// Computes dx[slot] = gate · dy[t] of one pair and returns d_gate = dy[t] · x[slot].
template <class T>
Accumulator<T> backward_pair(const T* x, const T* dy, std::int64_t cols, Accumulator<T> gate, T* dx) {
  using A = Accumulator<T>;
  A dot = 0;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t c = 0; c < cols; ++c) {
    const A d = static_cast<A>(dy[c]);
    dot += d * static_cast<A>(x[c]);
    dx[c] = round_to<T>(gate * d);
  }
  return dot;
}

}  // namespace

// The tokens are divided into parts, which threads process independently:
// 1. Each part counts its pairs per expert.
// 2. A prefix sum over experts, then parts, gives the first slot of each part for each expert.
// 3. Each part writes its pairs to its slots.
// The result of a stable sort is unique, so it does not depend on the number of parts.
void run(const CpuStream& stream, const SortByExpert& sort) {
  const std::int64_t tokens = sort.index.rows, k = sort.index.cols;
  const std::size_t experts = sort.order.size();
  require_length("SortByExpert", "begin", sort.begin, static_cast<std::int64_t>(experts) + 1);
  require_length("SortByExpert", "slot_pair", sort.slot_pair, tokens * k);
  require_length("SortByExpert", "pair_slot", sort.pair_slot, tokens * k);
  for (std::int64_t t = 0; t < tokens; ++t) {
    require_indices("SortByExpert", "index", std::span(sort.index.row(t), static_cast<std::size_t>(k)), -1,
                    sort.choices());
  }
  const std::vector<std::size_t> position = positions_of(sort.order);
  const std::int64_t parts = std::max(1, threads_for(stream, tokens / rows_per_thread(k)));
  // next[part][position of an expert]: in step 1 the part's number of pairs, from step 2 on the slot of its next pair.
  std::vector<std::vector<std::int64_t>> next(static_cast<std::size_t>(parts), std::vector<std::int64_t>(experts));
  const auto for_parts = [&](const auto& f) {
    parallel_for(stream, parts, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t part = first; part < last; ++part) {
        std::vector<std::int64_t>& own = next[static_cast<std::size_t>(part)];
        for (std::int64_t t = tokens * part / parts; t < tokens * (part + 1) / parts; ++t) {
          for (std::int64_t j = 0; j < k; ++j) {
            const std::int32_t expert = sort.index.row(t)[j];
            if (expert >= 0 && static_cast<std::size_t>(expert) < experts)
              f(own[position[static_cast<std::size_t>(expert)]], t * k + j);
          }
        }
      }
    });
  };
  for_parts([](std::int64_t& count, std::int64_t) { ++count; });
  std::int64_t slot = 0;
  for (std::size_t p = 0; p < experts; ++p) {
    sort.begin[p] = slot;
    for (std::vector<std::int64_t>& part : next) slot += std::exchange(part[p], slot);
  }
  sort.begin[experts] = slot;
  if (slot < tokens * k) {
    std::ranges::fill(sort.slot_pair.subspan(static_cast<std::size_t>(slot)), -1);
    std::ranges::fill(sort.pair_slot, -1);
  }
  for_parts([&](std::int64_t& next_slot, std::int64_t pair) {
    sort.slot_pair[static_cast<std::size_t>(next_slot)] = pair;
    sort.pair_slot[static_cast<std::size_t>(pair)] = next_slot++;
  });
}

void run(const CpuStream&, const PlaceInSegments& place) {
  const std::int64_t experts = std::ssize(place.rows),
                     sources = experts ? (std::ssize(place.arrived) - 1) / experts : 0;
  require_length("PlaceInSegments", "arrived", place.arrived, sources * experts + 1);
  require_length("PlaceInSegments", "begin", place.begin, experts + 1);
  require(std::ssize(place.segment_of_arrived) >= place.arrived.back(),
          "PlaceInSegments: segment_of_arrived has {} elements for {} rows", place.segment_of_arrived.size(),
          place.arrived.back());
  if (!place.wanted.empty()) require_length("PlaceInSegments", "wanted", place.wanted, experts);
  if (!place.fixed.empty()) {
    require_length("PlaceInSegments", "fixed", place.fixed, experts + 1);
    require(place.fixed.front() == 0 && place.fixed.back() <= std::ssize(place.arrived_of_segment),
            "PlaceInSegments: segments from {} to {} in {} rows", place.fixed.front(), place.fixed.back(),
            place.arrived_of_segment.size());
  }
  std::int64_t next = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto expert = static_cast<std::size_t>(e);
    place.begin[expert] = next;
    const std::int64_t length = place.fixed.empty() ? std::ssize(place.arrived_of_segment) - next
                                                    : place.fixed[expert + 1] - place.fixed[expert];
    const std::int64_t room = place.most < 0 ? length : std::min(length, place.most);
    std::int64_t rows = 0;
    for (std::int64_t s = 0; s < sources; ++s) {
      const auto part = static_cast<std::size_t>(s * experts + e);
      rows += place.arrived[part + 1] - place.arrived[part];
    }
    require(rows <= room, "PlaceInSegments: segment {} has room for {} rows, but gets {}", e, room, rows);
    for (std::int64_t s = 0; s < sources; ++s) {
      const auto part = static_cast<std::size_t>(s * experts + e);
      for (std::int64_t row = place.arrived[part]; row < place.arrived[part + 1]; ++row) {
        place.segment_of_arrived[static_cast<std::size_t>(row)] = next;
        place.arrived_of_segment[static_cast<std::size_t>(next++)] = row;
      }
    }
    place.rows[expert] = next - place.begin[expert];
    require(place.wanted.empty() || place.rows[expert] == place.wanted[expert],
            "PlaceInSegments: expert {} has {} rows instead of {}", e, place.rows[expert],
            place.wanted.empty() ? 0 : place.wanted[expert]);
    const std::int64_t end = place.fixed.empty() ? round_up(next, Segments::alignment) : place.fixed[expert] + length;
    while (next < end) place.arrived_of_segment[static_cast<std::size_t>(next++)] = -1;
  }
  place.begin[static_cast<std::size_t>(experts)] = next;
  const auto behind = place.arrived_of_segment.begin() + next;
  std::fill(behind, place.arrived_of_segment.end(), -1);
}

void run(const CpuStream& stream, const ComposeIndices& compose) {
  require_length("ComposeIndices", "map", compose.map, std::ssize(compose.y));
  require_indices("ComposeIndices", "map", compose.map, any_negative, std::ssize(compose.through));
  parallel_for(stream, std::ssize(compose.y), elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      const std::int64_t at = compose.map[i];
      compose.y[i] = at < 0 ? -1 : compose.through[static_cast<std::size_t>(at)];
    }
  });
}

void run(const CpuStream& stream, const SplitPairs& split) {
  require_fitting(split);
  require_indices("SplitPairs", "slot_of_pair", split.slot_of_pair, any_negative, std::ssize(split.pair_of_slot));
  require_indices("SplitPairs", "pair_of_slot", split.pair_of_slot, any_negative, std::ssize(split.slot_of_pair));
  const auto fill = [&](std::span<std::int64_t> all, const auto& value) {
    parallel_for(stream, std::ssize(all), elements_per_thread, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) all[static_cast<std::size_t>(i)] = value(i);
    });
  };
  fill(split.in_slots, [&](std::int64_t i) { return part_in_slots(split, i); });
  fill(split.by_token, [&](std::int64_t i) { return part_by_token(split, i); });
}

template <class T>
void run(const CpuStream& stream, const GatherRows<T>& gather) {
  const std::int64_t rows = gather.y.rows, cols = gather.y.cols, divisor = gather.divisor;
  require(divisor > 0, "GatherRows: the divisor of sources is {}, but must be positive", divisor);
  require_extents("GatherRows", "x", gather.x, gather.x.rows, cols);
  require_length("GatherRows", "source", gather.source, rows);
  require_indices("GatherRows", "source", gather.source, any_negative, gather.x.rows * divisor);
  parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t source = gather.source[static_cast<std::size_t>(r)];
      if (source < 0) {
        std::fill_n(gather.y.row(r), cols, gather.none());
      } else {
        std::copy_n(gather.x.row(source / divisor), cols, gather.y.row(r));
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const CombineRows<T>& combine) {
  using A = Accumulator<T>;
  const std::int64_t tokens = combine.y.rows, cols = combine.y.cols, k = combine.k;
  const bool gated = combine.gate.data != nullptr;
  require_extents("CombineRows", "x", combine.x, combine.x.rows, cols);
  require_length("CombineRows", "slot", combine.slot, tokens * k);
  require_indices("CombineRows", "slot", combine.slot, any_negative, combine.x.rows);
  if (gated) require_extents("CombineRows", "gate", combine.gate, tokens, k);
  parallel_for(stream, tokens, rows_per_thread(k * cols), [&](std::int64_t first, std::int64_t last) {
    std::array<A, tile> sum;
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t begin = 0; begin < cols; begin += tile) {
        const std::int64_t width = std::min(tile, cols - begin);
        std::fill_n(sum.data(), width, A{0});
        for (std::int64_t j = 0; j < k; ++j) {
          const std::int64_t slot = combine.slot[static_cast<std::size_t>(t * k + j)];
          if (slot < 0) continue;
          const T* x = combine.x.row(slot) + begin;
          const A gate = gated ? combine.gate.row(t)[j] : A{1};
#pragma omp simd
          for (std::int64_t c = 0; c < width; ++c) sum[static_cast<std::size_t>(c)] += gate * static_cast<A>(x[c]);
        }
        T* y = combine.y.row(t) + begin;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) y[c] = round_to<T>(sum[static_cast<std::size_t>(c)]);
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const CombineRowsBackward<T>& combine) {
  using A = Accumulator<T>;
  const std::int64_t tokens = combine.dy.rows, cols = combine.dy.cols, slots = combine.dx.rows, k = combine.k;
  const bool gated = combine.gate.data != nullptr;
  require_extents("CombineRowsBackward", "x", combine.x, slots, cols);
  require_extents("CombineRowsBackward", "dx", combine.dx, slots, cols);
  require_length("CombineRowsBackward", "slot", combine.slot, tokens * k);
  require_indices("CombineRowsBackward", "slot", combine.slot, any_negative, slots);
  if (gated) require_extents("CombineRowsBackward", "gate", combine.gate, tokens, k);
  if (gated) require_extents("CombineRowsBackward", "d_gate", combine.d_gate, tokens, k);
  std::vector<std::uint8_t> named(static_cast<std::size_t>(slots));
  for (const std::int64_t slot : combine.slot) {
    if (slot >= 0) named[static_cast<std::size_t>(slot)] = 1;
  }
  parallel_for(stream, slots, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t s = first; s < last; ++s) {
      if (!named[static_cast<std::size_t>(s)]) std::fill_n(combine.dx.row(s), cols, T{});
    }
  });
  parallel_for(stream, tokens, rows_per_thread(k * cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int64_t slot = combine.slot[static_cast<std::size_t>(t * k + j)];
        const A gate = gated ? combine.gate.row(t)[j] : A{1};
        const A dot =
            slot < 0 ? A{0} : backward_pair(combine.x.row(slot), combine.dy.row(t), cols, gate, combine.dx.row(slot));
        if (gated) combine.d_gate.row(t)[j] = dot;
      }
    }
  });
}

LYCEUM_PERMUTE_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
