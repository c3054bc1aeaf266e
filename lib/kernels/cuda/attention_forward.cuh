#pragma once

#include <cstdint>

#include "kernels/cuda/attention_task.cuh"

namespace lyceum::cuda {

/// Tile extents of the forward kernel for heads of `dim` columns of queries and keys and `value_dim` columns of values.
/// A block has `warps` warps, each warp holds 16 · tiles queries, and the block loops over the keys in tiles of `keys`.
/// Shared memory holds one tile each of q, k and v. The tile of q later stages the results.
template <int dim_, int warps_, int tiles_, int keys_, int value_dim_ = dim_>
struct ForwardTiling {
  static constexpr int dim = dim_, value_dim = value_dim_, warps = warps_, tiles = tiles_, keys = keys_;
  static_assert(value_dim <= dim);
  static constexpr int threads = 32 * warps, rows = 16 * tiles * warps;
  using OutTile = SwizzledTile<value_dim>;
  static constexpr int q_tile = 0, k_tile = SwizzledTile<dim>::bytes(rows);
  static constexpr int v_tile = k_tile + SwizzledTile<dim>::bytes(keys);
  static constexpr int shared_bytes = v_tile + SwizzledTile<value_dim>::bytes(keys);
};

/// Sets the elements whose key is later than the query to `nothing`. Row 0 of `values` is query `query`, column 0 is
/// key `key`.
template <int tiles, int columns>
LYCEUM_DEVICE void mask_future(const CausalOrder& order, int query, int key, int lane, float nothing,
                               Accumulators<tiles, columns>& values) {
  LYCEUM_UNROLL
  for (int t = 0; t < tiles; ++t) {
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const MatrixPosition at = MmaLayout::c(lane, i);
      const int seen = order.seen(query + 16 * t + at.row) - key;
      LYCEUM_UNROLL
      for (int n = 0; n < columns / 8; ++n) {
        if (8 * n + at.col >= seen) values.at[t][n][i] = nothing;
      }
    }
  }
}

/// Sets the elements whose key is before the query's document or window to `nothing`. Rows and columns as in
/// mask_future().
template <int tiles, int columns>
LYCEUM_DEVICE void mask_past(const CausalOrder& order, int query, int key, int lane, float nothing,
                             Accumulators<tiles, columns>& values) {
  if (!order.hides(query + 16 * tiles, key)) return;
  LYCEUM_UNROLL
  for (int t = 0; t < tiles; ++t) {
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const MatrixPosition at = MmaLayout::c(lane, i);
      const int hidden = order.first_key(query + 16 * t + at.row) - key;
      LYCEUM_UNROLL
      for (int n = 0; n < columns / 8; ++n) {
        if (8 * n + at.col < hidden) values.at[t][n][i] = nothing;
      }
    }
  }
}

/// Sets the elements of all keys that a query does not see to `nothing`: mask_future() and mask_past(). Each is
/// skipped if it would not change anything.
template <int tiles, int columns>
LYCEUM_DEVICE void mask(const CausalOrder& order, int query, int key, int lane, float nothing,
                        Accumulators<tiles, columns>& values) {
  if (order.crosses(query, key + columns)) mask_future(order, query, key, lane, nothing, values);
  mask_past(order, query, key, lane, nothing, values);
}

/// Online softmax of a warp's rows over key tiles that arrive one after another. [Milakov & Gimelshein 2018; Dao 2023]
/// Index [t][half] is row 16 t + 8 half + lane / 4. `largest` is the row's maximum so far, `sum` this lane's part of
/// the row's sum, `shrink` the factor by which the last step scaled older sums.
template <int tiles>
struct OnlineSoftmax {
  float largest[tiles][2], sum[tiles][2], shrink[tiles][2];

  LYCEUM_DEVICE OnlineSoftmax() {
    LYCEUM_UNROLL
    for (int t = 0; t < tiles; ++t) {
      LYCEUM_UNROLL
      for (int half = 0; half < 2; ++half) largest[t][half] = -__builtin_huge_valf(), sum[t][half] = 0;
    }
  }

  /// Replaces scores by 2^(scale · (scores - largest)) and updates the row's maximum and sum. The caller must then
  /// multiply by `shrink` what it has summed in earlier steps, see rescale(). The maximum ignores a NaN, which then
  /// propagates through the exponential. A row without visible keys so far has the maximum minus infinity and gets
  /// zeros.
  template <int keys, class Machine>
  LYCEUM_DEVICE void step(const Machine& m, float scale, Accumulators<tiles, keys>& scores) {
    LYCEUM_UNROLL
    for (int t = 0; t < tiles; ++t) {
      LYCEUM_UNROLL
      for (int half = 0; half < 2; ++half) {
        float most = largest[t][half];
        LYCEUM_UNROLL
        for (int n = 0; n < keys / 8; ++n) {
          LYCEUM_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) most = m.larger(most, scores.at[t][n][i]);
        }
        most = m.larger(most, m.from_lane_xor(most, 1));
        most = m.larger(most, m.from_lane_xor(most, 2));
        const float base = most == -__builtin_huge_valf() ? 0.0f : most;
        shrink[t][half] = m.exp2((largest[t][half] - base) * scale);
        largest[t][half] = most;
        const float shift = base * scale;
        float total = sum[t][half] * shrink[t][half];
        LYCEUM_UNROLL
        for (int n = 0; n < keys / 8; ++n) {
          LYCEUM_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores.at[t][n][i] = m.exp2(scores.at[t][n][i] * scale - shift);
            total += scores.at[t][n][i];
          }
        }
        sum[t][half] = total;
      }
    }
  }

  /// Multiplies `out`, a sum over the key tiles before the last step(), by that step's `shrink`.
  template <int dim>
  LYCEUM_DEVICE void rescale(Accumulators<tiles, dim>& out) const {
    LYCEUM_UNROLL
    for (int t = 0; t < tiles; ++t) {
      LYCEUM_UNROLL
      for (int n = 0; n < dim / 8; ++n) {
        LYCEUM_UNROLL
        for (int i = 0; i < 4; ++i) out.at[t][n][i] *= shrink[t][i / 2];
      }
    }
  }

  /// Adds up the four lanes' parts of each row's sum; afterwards all four lanes hold the row's sum in `sum`. Call once,
  /// after the last step(), in all lanes of the warp.
  template <class Machine>
  LYCEUM_DEVICE void finish(const Machine& m) {
    LYCEUM_UNROLL
    for (int t = 0; t < tiles; ++t) {
      LYCEUM_UNROLL
      for (int half = 0; half < 2; ++half) {
        sum[t][half] += m.from_lane_xor(sum[t][half], 1);
        sum[t][half] += m.from_lane_xor(sum[t][half], 2);
      }
    }
  }
};

/// Divides a warp's `out` by the softmax sums, and writes out, log_sum_exp and `largest` of its rows. `first` is the
/// block's first query, `row` the warp's first row in the block.
template <class Tiling, class Machine>
LYCEUM_DEVICE void finish_rows(const Machine& m, const ForwardTask<bfloat16>& task, const HeadIndices& indices,
                               int first, int row, OnlineSoftmax<Tiling::tiles>& softmax,
                               Accumulators<Tiling::tiles, Tiling::value_dim>& out) {
  const AttentionShape& shape = task.shape;
  const int lane = m.thread() % 32;
  softmax.finish(m);
  LYCEUM_UNROLL
  for (int t = 0; t < Tiling::tiles; ++t) {
    LYCEUM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float sum = softmax.sum[t][half], inverse = 1.0f / sum;
      LYCEUM_UNROLL
      for (int n = 0; n < Tiling::value_dim / 8; ++n) {
        LYCEUM_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) out.at[t][n][i] *= inverse;
      }
      const int query = first + row + 16 * t + 8 * half + lane / 4;
      if (lane % 4 == 0 && query < shape.query_len) {
        const std::int64_t at = indices.sequence * shape.query_len + query;
        const float largest = softmax.largest[t][half] * task.scale;
        *task.log_sum_exp.at(at, indices.head) = largest + m.log(sum);
        if (task.largest.data) *task.largest.at(at, indices.head) = largest;
      }
    }
  }
  store<typename Tiling::OutTile>(
      m, out, Tiling::q_tile, row, 0,
      panel_of(task.out, indices.sequence, shape.query_len, first, indices.head, value_cols(task), task.aligned));
}

/// Adds p·v to `out` for the block's queries, which begin at `first`, over `steps` key tiles; step s uses tile
/// tile_of(s). parts(key, scores) replaces a warp's scores by p for the tile whose first column is key `key`. The
/// values of a tile are copied while its scores are computed, the next keys while values are summed. All threads of the
/// block call it.
template <class Tiling, class Machine, class Task, class TileOf, class Parts>
LYCEUM_DEVICE void add_values(const Machine& m, const Task& task, const HeadIndices& indices, int first, int steps,
                              TileOf&& tile_of, Accumulators<Tiling::tiles, Tiling::value_dim>& out, Parts&& parts) {
  constexpr int dim = Tiling::dim, value_dim = Tiling::value_dim, keys = Tiling::keys;
  const AttentionShape& shape = task.shape;
  const auto load_keys = [&](int step) {
    load_tile<SwizzledTile<dim>, keys, Tiling::threads>(
        m, Tiling::k_tile,
        panel_of(task.k, indices.sequence, shape.key_len, tile_of(step) * keys, indices.kv_head, shape.head_dim,
                 task.aligned));
  };
  const auto load_values = [&](int step) {
    load_tile<SwizzledTile<value_dim>, keys, Tiling::threads>(
        m, Tiling::v_tile,
        panel_of(task.v, indices.sequence, shape.key_len, tile_of(step) * keys, indices.kv_head, value_cols(task),
                 task.aligned));
  };
  load_tile<SwizzledTile<dim>, Tiling::rows, Tiling::threads>(
      m, Tiling::q_tile,
      panel_of(task.q, indices.sequence, shape.query_len, first, indices.head, shape.head_dim, task.aligned));
  load_keys(0);

  const int row = m.thread() / 32 * 16 * Tiling::tiles;
  for (int step = 0; step < steps; ++step) {
    m.wait();
    m.sync();  // k of this step has arrived, and every warp is done with v of the step before
    load_values(step);
    Accumulators<Tiling::tiles, keys> scores;
    multiply<dim>(m, Tiling::q_tile, row, Tiling::k_tile, scores);
    m.wait();
    m.sync();  // v of this step has arrived, and every warp is done with k of this step
    if (step + 1 < steps) load_keys(step + 1);
    parts(tile_of(step) * keys, scores);
    const Operand<Tiling::tiles, keys> p(m, scores);
    multiply_add<value_dim>(m, p, Tiling::v_tile, 0, out);
  }
}

/// Computes out and log_sum_exp of one tile of queries of one head, over all keys that they see, in ascending order.
/// One thread block per call.
template <class Tiling, class Machine>
LYCEUM_DEVICE void attention_forward(const Machine& m, const ForwardTask<bfloat16>& task,
                                     const BlockOrder::Block& block) {
  constexpr int keys = Tiling::keys;
  const HeadIndices indices = HeadIndices::of_query_head(task.shape, block.head);
  const CausalOrder order = causal_order(task, indices.sequence);
  const int first = block.tile * Tiling::rows, row = m.thread() / 32 * 16 * Tiling::tiles;
  const int begin = order.first_tile(first, keys), steps = order.end_tile(first, Tiling::rows, keys) - begin;
  Accumulators<Tiling::tiles, Tiling::value_dim> out;
  out.clear();
  OnlineSoftmax<Tiling::tiles> softmax;
  const auto in_order = [=](int step) { return begin + step; };
  add_values<Tiling>(m, task, indices, first, steps, in_order, out,
                     [&](int key, Accumulators<Tiling::tiles, keys>& scores) {
                       mask(order, first + row, key, m.thread() % 32, -__builtin_huge_valf(), scores);
                       softmax.step(m, task.scale * log2_of_e, scores);
                       softmax.rescale(out);
                     });
  finish_rows<Tiling>(m, task, indices, first, row, softmax, out);
}

}  // namespace lyceum::cuda
