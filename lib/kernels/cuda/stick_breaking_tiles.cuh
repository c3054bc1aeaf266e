#pragma once

#include <cmath>
#include <cstdint>

#include "core/round_up.h"
#include "kernels/cuda/attention_tilings.cuh"
#include "kernels/cuda/stick_breaking_task.cuh"
#include "kernels/logistic.h"

// Stick-breaking attention with the tiles of softmax attention (attention_forward.cuh, attention_backward.cuh). With
// log β = z - softplus(z) and the cost of a key -log(1 - β) = softplus(z): log p_i = log β_i - Σ_{j > i} cost_j.
//
// Costs are summed in f32 over a span of 16 keys, and in f64 over spans. Forward walks from the newest span to the
// oldest. The kernel for dq walks the other way, since Σ_{j <= i} p_j dp_j begins with the oldest key. It computes the
// cost of newer spans as log_rest minus the costs of the spans that it has passed. These are the numbers that forward
// added, up to the last bits of softplus, and costs of large scores do not have such bits. So the difference is as
// accurate as these bits and f64 allow, however many keys there are, and backward needs no separate pass over the
// scores.
//
// The kernel for dk and dv processes the keys of one span at a time. For each query, it needs the share of the stick
// that newer keys left, and the sum of p dp over older keys. The kernel for dq stores both for every query and span.
// The two kernels alternate over sections of the keys, so that scratch memory grows with the number of queries, not
// with that of pairs of queries and keys.

namespace lyceum::cuda {

inline constexpr int span_keys = 16;

/// Sums of `value` over the lanes whose indices differ from this lane's in the bits from `nearest` to `farthest` only:
/// over lower lanes (before), over higher lanes (behind), and over all including this one, which has the same bits in
/// every lane.
struct SumsAround {
  float before = 0, behind = 0, all;
  template <class Machine>
  LYCEUM_DEVICE SumsAround(const Machine& m, int nearest, int farthest, float value) : all(value) {
    LYCEUM_UNROLL
    for (int bit = nearest; bit <= farthest; bit *= 2) {
      const float other = m.from_lane_xor(all, bit);
      const bool last = m.thread() & bit;
      before += last ? other : 0.0f;
      behind += last ? 0.0f : other;
      all += other;
    }
  }
};

/// A query's span of 16 keys, as mma leaves it in a row (`width` 2) or a column (`width` 1) of its results. Element
/// [block][i] is key 8 · block + width · (index of this lane within the row or column) + i of the span. All lanes of
/// the row or column must take part. In this file, `behind` means newer: keys behind a span come after it in the
/// sequence, and take their shares of the stick before it.
template <int width>
struct Span {
  static constexpr int nearest = width == 2 ? 1 : 4, farthest = width == 2 ? 2 : 16;
  float log_share[2][width];  // log β
  float log_part[2][width];   // log p if the keys behind the span took nothing of the stick
  float cost;                 // sum over all keys of the span

  /// `score` is scaled. A score of minus infinity has p = 0 and cost 0.
  template <class Machine>
  LYCEUM_DEVICE Span(const Machine& m, const float (&score)[2][width]) {
    float costs[2][width];
    LYCEUM_UNROLL
    for (int block = 0; block < 2; ++block) {
      LYCEUM_UNROLL
      for (int i = 0; i < width; ++i) {
        const float z = score[block][i], rest = fast_log1p(m.exp2(-std::abs(z) * log2_of_e));
        log_share[block][i] = (z < 0 ? z : 0) - rest;
        costs[block][i] = (z > 0 ? z : 0) + rest;
      }
    }
    const SumsAround older(m, nearest, farthest, sum(costs[0])), newer(m, nearest, farthest, sum(costs[1]));
    cost = older.all + newer.all;
    LYCEUM_UNROLL
    for (int block = 0; block < 2; ++block) {
      float behind = block == 0 ? older.behind + newer.all : newer.behind;
      LYCEUM_UNROLL
      for (int i = width - 1; i >= 0; --i) {
        log_part[block][i] = log_share[block][i] - behind;
        behind += costs[block][i];
      }
    }
  }

  /// Computes p, and replaces dp by ds = p ∘ dp - β Σ_{j <= i} p_j dp_j. `left` is the share of the stick that keys
  /// behind the span left, `older` is Σ p dp over the keys before the span. Returns the span's own Σ p dp.
  template <class Machine>
  LYCEUM_DEVICE float gradients(const Machine& m, float left, float older, float (&p)[2][width],
                                float (&dp)[2][width]) const {
    float own[2][width];
    LYCEUM_UNROLL
    for (int block = 0; block < 2; ++block) {
      LYCEUM_UNROLL
      for (int i = 0; i < width; ++i) {
        p[block][i] = m.exp2(log_part[block][i] * log2_of_e) * left;
        own[block][i] = p[block][i] * dp[block][i];
      }
    }
    const SumsAround first(m, nearest, farthest, sum(own[0])), second(m, nearest, farthest, sum(own[1]));
    LYCEUM_UNROLL
    for (int block = 0; block < 2; ++block) {
      float to_here = older + (block == 0 ? first.before : first.all + second.before);
      LYCEUM_UNROLL
      for (int i = 0; i < width; ++i) {
        to_here += own[block][i];
        dp[block][i] = own[block][i] - m.exp2(log_share[block][i] * log2_of_e) * to_here;
      }
    }
    return first.all + second.all;
  }

 private:
  static LYCEUM_DEVICE float sum(const float (&values)[width]) {
    float total = values[0];
    LYCEUM_UNROLL
    for (int i = 1; i < width; ++i) total += values[i];
    return total;
  }
};

/// Calls f(t, half, span) for every row of a lane's accumulators and every span of it, the oldest span first.
template <int tiles, int keys, class F>
LYCEUM_DEVICE void for_each_span(F&& f) {
  LYCEUM_UNROLL
  for (int span = 0; span < keys / span_keys; ++span) {
    LYCEUM_UNROLL
    for (int t = 0; t < tiles; ++t) {
      LYCEUM_UNROLL
      for (int half = 0; half < 2; ++half) f(t, half, span);
    }
  }
}

/// Copies a row's span from accumulators, times `factor`; put_span() copies one back.
template <int tiles, int keys>
LYCEUM_DEVICE void take_span(const Accumulators<tiles, keys>& from, int t, int half, int span, float factor,
                             float (&to)[2][2]) {
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) to[i / 2][i % 2] = from.at[t][2 * span + i / 2][2 * half + i % 2] * factor;
}
template <int tiles, int keys>
LYCEUM_DEVICE void put_span(const float (&from)[2][2], int t, int half, int span, Accumulators<tiles, keys>& to) {
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) to.at[t][2 * span + i / 2][2 * half + i % 2] = from[i / 2][i % 2];
}

/// The task of stick_forward(). Tiles of stick-breaking attention have no window, and values as wide as keys: otherwise
/// they would not have enough registers.
struct StickTilesTask : StickForwardTask<bfloat16> {
  static constexpr bool windowless = true, square = true;
  /// True if the tiles can be used for an attention of this shape.
  static bool fits(const AttentionShape& shape) {
    return shape.widest() <= max_tiled_dim && shape.value_cols() == shape.head_dim && shape.window == 0;
  }
};

/// Computes out and log_rest of one tile of queries of one head, over all keys that they see, the newest first. One
/// thread block per call.
template <class Tiling, class Machine>
LYCEUM_DEVICE void stick_forward(const Machine& m, const StickTilesTask& task, const BlockOrder::Block& block) {
  constexpr int keys = Tiling::keys, tiles = Tiling::tiles;
  const AttentionShape& shape = task.shape;
  const HeadIndices indices = HeadIndices::of_query_head(shape, block.head);
  const CausalOrder order = causal_order(task, indices.sequence);
  const int lane = m.thread() % 32, first = block.tile * Tiling::rows, row = m.thread() / 32 * 16 * tiles;
  const int end = order.end_tile(first, Tiling::rows, keys), steps = end - order.first_tile(first, keys);
  Accumulators<tiles, Tiling::value_dim> out;
  out.clear();
  double behind[tiles][2] = {};  // cost of the keys processed so far
  const auto newest_first = [=](int step) { return end - 1 - step; };
  add_values<Tiling>(m, task, indices, first, steps, newest_first, out,
                     [&](int key, Accumulators<tiles, keys>& scores) {
                       mask(order, first + row, key, lane, -__builtin_huge_valf(), scores);
                       for_each_span<tiles, keys>([&](int t, int half, int older_spans) {
                         const int span = keys / span_keys - 1 - older_spans;
                         float values[2][2];
                         take_span(scores, t, half, span, task.scale, values);
                         const Span<2> stick(m, values);
                         const float passed = static_cast<float>(behind[t][half]);
                         LYCEUM_UNROLL
                         for (int i = 0; i < 4; ++i) {
                           values[i / 2][i % 2] = m.exp2((stick.log_part[i / 2][i % 2] - passed) * log2_of_e);
                         }
                         put_span(values, t, half, span, scores);
                         behind[t][half] += stick.cost;
                       });
                     });
  LYCEUM_UNROLL
  for (int t = 0; t < tiles; ++t) {
    LYCEUM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int query = first + row + 16 * t + 8 * half + lane / 4;
      if (lane % 4 == 0 && query < shape.query_len) {
        *task.log_rest.at(indices.sequence * shape.query_len + query, indices.head) = -behind[t][half];
      }
    }
  }
  store<typename Tiling::OutTile>(
      m, out, Tiling::q_tile, row, 0,
      panel_of(task.out, indices.sequence, shape.query_len, first, indices.head, shape.head_dim, task.aligned));
}

/// The state of a query's stick at one span of keys.
struct alignas(8) StickAt {
  float left;   // share that the keys behind the span left
  float older;  // Σ p dp of the keys before the span
};

/// State of the backward pass at keys [first, first + section) of each sequence, the oldest section first. [rows]
/// counts the queries of all heads of all sequences, padded to whole tiles per head; in the padding rows nothing is
/// left of the stick.
struct StickSectionTask : StickBackwardTask<bfloat16> {
  static constexpr bool windowless = true, square = true;  // see StickTilesTask
  std::int64_t queries;                                    // per head, padded to whole tiles
  int section, first = 0;
  StickAt* at = nullptr;     // [heads of all sequences, section / span_keys, queries]
  double* behind = nullptr;  // [rows]: cost of the keys from `first` on
  float* older = nullptr;    // [rows]: Σ p dp of the keys before `first`
  // [rows, columns of a tile], in the order in which threads hold them: dq from the keys before `first`.
  float* dq_sums = nullptr;

  /// Chooses sections of at most `most` keys, a multiple of 128, which every tile's number of keys divides. The caller
  /// must allocate the memory that the pointers refer to and may leave it uninitialised.
  StickSectionTask(const StickBackwardTask<bfloat16>& backward, int tile_rows, int most)
      : StickBackwardTask(backward),
        queries(round_up<std::int64_t>(shape.query_len, tile_rows)),
        section(shape.key_len < most ? round_up(static_cast<int>(shape.key_len), 128) : most) {}
  /// Number of rows, and of elements of `at` and of `dq_sums` (none with a single section).
  std::int64_t rows() const { return shape.sequences * shape.heads * queries; }
  std::int64_t spans() const { return rows() * (section / span_keys); }
  std::int64_t sums(int columns) const { return section < shape.key_len ? rows() * columns : 0; }
  /// Block order of the kernel for dk and dv: blocks of `tile_rows` of the section's keys for every key head.
  BlockOrder key_order(int tile_rows, std::int64_t heads_together) const {
    const std::int64_t left = shape.key_len - first, keys = left < section ? left : section;
    return {shape.sequences * shape.kv_heads, (keys + tile_rows - 1) / tile_rows, heads_together, false};
  }
};

/// Tile extents of the kernel for dk and dv. In each stage, the StickAt of the block's spans and the stage's queries
/// follow the data of the queries: [spans, queries].
template <class Tiling>
struct StickDkvTiling : Tiling {
  static constexpr int spans = Tiling::rows / span_keys;
  static constexpr int stage_bytes = Tiling::sums_in_stage + spans * Tiling::queries * int{sizeof(StickAt)};
  static constexpr int shared_bytes = Tiling::stages + 2 * stage_bytes;
};

/// The state that a warp carries for its queries from section to section. Index [t][half] is row 16 t + 8 half + lane /
/// 4.
template <class Tiling>
struct CarriedRows {
  double behind[Tiling::tiles][2];
  float older[Tiling::tiles][2];
  Accumulators<Tiling::tiles, Tiling::dim> dq;

  /// Initialises the state before the first section that the queries see.
  LYCEUM_DEVICE void begin(const StickSectionTask& task, const HeadIndices& indices, int first_row, int lane) {
    dq.clear();
    LYCEUM_UNROLL
    for (int t = 0; t < Tiling::tiles; ++t) {
      LYCEUM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int query = first_row + 16 * t + 8 * half + lane / 4;
        const std::int64_t row = indices.sequence * task.shape.query_len + query;
        behind[t][half] = query < task.shape.query_len ? -*task.log_rest.at(row, indices.head) : __builtin_huge_val();
        older[t][half] = 0;
      }
    }
  }

  /// Calls f(number, its location in global memory) for every number that this lane carries, to load or to store them.
  template <class F>
  LYCEUM_DEVICE void each(const StickSectionTask& task, const BlockOrder::Block& block, int thread, F&& f) {
    constexpr int tiles = Tiling::tiles, columns = Tiling::dim / 8;
    const std::int64_t queries = block.head * task.queries + block.tile * Tiling::rows;
    const std::int64_t row = queries + thread / 32 * 16 * tiles + thread % 32 / 4;
    float* sums = task.dq_sums + queries * Tiling::dim + thread;
    LYCEUM_UNROLL
    for (int t = 0; t < tiles; ++t) {
      LYCEUM_UNROLL
      for (int half = 0; half < 2; ++half) {
        f(behind[t][half], task.behind[row + 16 * t + 8 * half]);
        f(older[t][half], task.older[row + 16 * t + 8 * half]);
      }
      LYCEUM_UNROLL
      for (int n = 0; n < columns; ++n) {
        LYCEUM_UNROLL
        for (int i = 0; i < 4; ++i) f(dq.at[t][n][i], sums[((t * columns + n) * 4 + i) * Tiling::threads]);
      }
    }
  }
};

/// Computes the contribution of a section's keys to dq of one tile of queries of one head, over those keys that they
/// see, the oldest first. Stores the StickAt that stick_dkv() needs for the section. Writes dq after the queries' last
/// section. One thread block per call.
template <class Tiling, class Machine>
LYCEUM_DEVICE void stick_dq(const Machine& m, const StickSectionTask& task, const BlockOrder::Block& block) {
  constexpr int keys = Tiling::keys, tiles = Tiling::tiles;
  const HeadIndices indices = HeadIndices::of_query_head(task.shape, block.head);
  const CausalOrder order = causal_order(task, indices.sequence);
  const int lane = m.thread() % 32, first = block.tile * Tiling::rows, row = m.thread() / 32 * 16 * tiles;
  const int section_begin = task.first / keys, section_end = (task.first + task.section) / keys;
  const int first_seen = order.first_tile(first, keys), seen = order.end_tile(first, Tiling::rows, keys);
  const int begin = first_seen > section_begin ? first_seen : section_begin;
  const int end = seen < section_end ? seen : section_end;
  if (begin >= end) return;  // dq was written at an earlier section, or will be at a later one
  CarriedRows<Tiling> carried;
  if (begin == first_seen) {
    carried.begin(task, indices, first + row, lane);
  } else {
    carried.each(task, block, m.thread(), [](auto& number, const auto& kept) { number = kept; });
  }
  StickAt* at = task.at + task.queries * block.head * (task.section / span_keys) + first + row + lane / 4;
  add_to_dq<Tiling>(
      m, task, indices, first, begin, end, carried.dq,
      [&](int key, Accumulators<tiles, keys>& scores, Accumulators<tiles, keys>& dp) {
        mask(order, first + row, key, lane, -__builtin_huge_valf(), scores);
        mask(order, first + row, key, lane, 0, dp);
        for_each_span<tiles, keys>([&](int t, int half, int span) {
          float score[2][2], p[2][2], gradient[2][2];
          take_span(scores, t, half, span, task.scale, score);
          take_span(dp, t, half, span, 1, gradient);
          const Span<2> stick(m, score);
          double& behind = carried.behind[t][half];
          float& older = carried.older[t][half];
          behind -= stick.cost;
          const float left = m.exp2(static_cast<float>(-behind) * log2_of_e);
          if (lane % 4 == 0) {
            at[((key - task.first) / span_keys + span) * task.queries + 16 * t + 8 * half] = {left, older};
          }
          older += stick.gradients(m, left, older, p, gradient);
          put_span(gradient, t, half, span, dp);
        });
      });
  if (end == seen) {
    store_dq<Tiling>(m, task, indices, first, carried.dq);
  } else {
    carried.each(task, block, m.thread(), [](const auto& number, auto& kept) { kept = number; });
  }
}

/// Computes dk and dv of one tile of a section's keys of one key head, over all queries that see them. Launch it after
/// stick_dq() of the same section, whose StickAt it reads. One thread block per call.
template <class Tiling, class Machine>
LYCEUM_DEVICE void stick_dkv(const Machine& m, const StickSectionTask& task, const BlockOrder::Block& block) {
  constexpr int tiles = Tiling::tiles, queries = Tiling::queries;
  using Scores = Accumulators<tiles, queries>;
  const AttentionShape& shape = task.shape;
  const int lane = m.thread() % 32, first_span = block.tile * Tiling::spans;
  const int first = task.first + block.tile * Tiling::rows, warp_span = m.thread() / 32 / Tiling::splits * tiles;
  const QueryWalk walk(task, block, first, Tiling::rows, queries);
  const auto load_spans = [&](int head, int query, int to) {
    const std::int64_t spans = (walk.sequence * shape.heads + head) * (task.section / span_keys) + first_span;
    constexpr int copies = queries / 2;  // 16-byte copies per span
    for (int i = m.thread(); i < Tiling::spans * copies; i += Tiling::threads) {
      m.copy_16(to + 16 * i, task.at + (spans + i / copies) * task.queries + query + i % copies * 2, true);
    }
  };
  write_dkv<Tiling>(
      m, task, walk, first, load_spans, [&](const TransposedMask& mask, int spans, Scores& scores, Scores& dp) {
        mask_past(mask, lane, -__builtin_huge_valf(), scores);
        mask_past(mask, lane, 0, dp);
        LYCEUM_UNROLL
        for (int n = 0; n < queries / 8 * 2; ++n) {
          const int i = n % 2, col = n / 2 * 8 + MmaLayout::c(lane, i).col;
          LYCEUM_UNROLL
          for (int t = 0; t < tiles; ++t) {
            float score[2][1], p[2][1], gradient[2][1];
            LYCEUM_UNROLL
            for (int half = 0; half < 2; ++half) {
              const bool seen = mask.seen(16 * t + 8 * half + lane / 4, col);
              score[half][0] = seen ? scores.at[t][n / 2][2 * half + i] * task.scale : -__builtin_huge_valf();
              gradient[half][0] = seen ? dp.at[t][n / 2][2 * half + i] : 0.0f;
            }
            StickAt at{0, 0};  // uninitialised in memory if the query sees nothing of the span
            if (mask.seen(16 * t, col) && !mask.hidden(16 * t + span_keys - 1, col)) {
              at = *m.template shared<StickAt>(spans + ((warp_span + t) * queries + col) * 8);
            }
            Span<1>(m, score).gradients(m, at.left, at.older, p, gradient);
            LYCEUM_UNROLL
            for (int half = 0; half < 2; ++half) {
              scores.at[t][n / 2][2 * half + i] = p[half][0];
              dp.at[t][n / 2][2 * half + i] = gradient[half][0];
            }
          }
        }
      });
}

}  // namespace lyceum::cuda
