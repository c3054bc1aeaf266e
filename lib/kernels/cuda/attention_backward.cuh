#pragma once

#include <cstdint>

#include "kernels/cuda/attention_forward.cuh"

namespace lyceum::cuda {

// The backward pass without warpgroup products is three kernel launches. Each writes its results once and sums in a
// fixed order:
// 1. delta = Σ_d out · d_out, one number per query and head (attention_plain.cu).
// 2. attention_dq: p = exp(scale · q·k - log_sum_exp), ds = p ∘ (d_out·vᵀ - delta), dq = scale · ds·k.
// 3. attention_dkv: dv = pᵀ·d_out and dk = scale · dsᵀ·q. It computes the transposed scores k·qᵀ and v·d_outᵀ, so that
//    pᵀ and dsᵀ are already in the registers that mma reads as operand A.

/// Begins copying log_sum_exp of queries [first, first + rows) to shared memory at offset `to`, followed by their
/// delta: 2 · rows floats. Queries beyond the end of the sequence, which only pad the tile, get zeros. All `threads`
/// threads call it.
template <int rows, int threads, class Machine>
LYCEUM_DEVICE void load_sums(const Machine& m, const BackwardTask<bfloat16>& task, int sequence, int head, int first,
                             int to) {
  const int length = static_cast<int>(task.shape.query_len);
  for (int index = m.thread(); index < 2 * rows; index += threads) {
    const int query = first + index % rows;
    const std::int64_t row = sequence * task.shape.query_len + (query < length ? query : 0);
    m.copy_4(to + 4 * index, index < rows ? task.log_sum_exp.at(row, head) : task.delta.at(row, head), query < length);
  }
}

/// Tile extents of the dq kernel, for heads as in ForwardTiling. A block has `warps` warps, each warp holds 16 · tiles
/// queries, and the block loops over the keys in tiles of `keys`. Shared memory holds the tiles of q and d_out, then
/// two stages of (k, v), then log_sum_exp and delta of the queries.
template <int dim_, int warps_, int tiles_, int keys_, int value_dim_ = dim_>
struct DqTiling {
  static constexpr int dim = dim_, value_dim = value_dim_, warps = warps_, tiles = tiles_, keys = keys_;
  static constexpr int threads = 32 * warps, rows = 16 * tiles * warps;
  static constexpr int q_tile = 0, d_out_tile = SwizzledTile<dim>::bytes(rows),
                       stages = d_out_tile + SwizzledTile<value_dim>::bytes(rows);
  static constexpr int v_in_stage = SwizzledTile<dim>::bytes(keys),
                       stage_bytes = v_in_stage + SwizzledTile<value_dim>::bytes(keys);
  static constexpr int sums = stages + 2 * stage_bytes, shared_bytes = sums + 2 * 4 * rows;
};

/// Replaces dp by ds = p ∘ (dp - delta) for the warp's queries, which begin at `first` + `row`, and the keys from `key`
/// on. Elements whose key is masked for the query become zero.
template <class Tiling, class Machine>
LYCEUM_DEVICE void score_gradients(const Machine& m, float scale, const CausalOrder& order, int first, int row, int key,
                                   const Accumulators<Tiling::tiles, Tiling::keys>& scores,
                                   Accumulators<Tiling::tiles, Tiling::keys>& dp) {
  constexpr int keys = Tiling::keys;
  const bool masked = order.crosses(first + row, key + keys);
  LYCEUM_UNROLL
  for (int t = 0; t < Tiling::tiles; ++t) {
    LYCEUM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const MatrixPosition at = MmaLayout::c(m.thread() % 32, 2 * half);
      const int query = row + 16 * t + at.row, seen = masked ? order.seen(first + query) - key : keys;
      const float log_sum_exp = *m.template shared<float>(Tiling::sums + 4 * query) * log2_of_e;
      const float delta = *m.template shared<float>(Tiling::sums + 4 * (Tiling::rows + query));
      LYCEUM_UNROLL
      for (int n = 0; n < keys / 8; ++n) {
        LYCEUM_UNROLL
        for (int i = 0; i < 2; ++i) {
          const float p = m.exp2(scores.at[t][n][2 * half + i] * scale - log_sum_exp);
          float& gradient = dp.at[t][n][2 * half + i];
          gradient = 8 * n + at.col + i < seen ? p * (gradient - delta) : 0.0f;
        }
      }
    }
  }
  mask_past(order, first + row, key, m.thread() % 32, 0, dp);
}

/// Multiplies all accumulators by `factor`.
template <int tiles, int columns>
LYCEUM_DEVICE void scale_all(Accumulators<tiles, columns>& values, float factor) {
  LYCEUM_UNROLL
  for (int t = 0; t < tiles; ++t) {
    LYCEUM_UNROLL
    for (int n = 0; n < columns / 8; ++n) {
      LYCEUM_UNROLL
      for (int i = 0; i < 4; ++i) values.at[t][n][i] *= factor;
    }
  }
}

/// Adds ds·k to dq for the block's queries, which begin at `first`, over key tiles [begin, end) in ascending order.
/// gradients(key, scores, dp) replaces dp = d_out·vᵀ by ds for the tile whose first column is key `key`. Keys and
/// values are double-buffered: the next tile is copied while this one is used. All threads of the block call it.
template <class Tiling, class Machine, class Task, class Gradients>
LYCEUM_DEVICE void add_to_dq(const Machine& m, const Task& task, const HeadIndices& indices, int first, int begin,
                             int end, Accumulators<Tiling::tiles, Tiling::dim>& dq, Gradients&& gradients) {
  constexpr int dim = Tiling::dim, value_dim = Tiling::value_dim, keys = Tiling::keys, tiles = Tiling::tiles;
  const AttentionShape& shape = task.shape;
  const auto queries = [&](const auto& matrix, std::int64_t cols) {
    return panel_of(matrix, indices.sequence, shape.query_len, first, indices.head, cols, task.aligned);
  };
  const auto load_keys = [&](int step) {
    const int stage = Tiling::stages + step % 2 * Tiling::stage_bytes;
    const auto keys_of = [&](const StridedMatrix<const bfloat16>& matrix, std::int64_t cols) {
      return panel_of(matrix, indices.sequence, shape.key_len, step * keys, indices.kv_head, cols, task.aligned);
    };
    load_tile<SwizzledTile<dim>, keys, Tiling::threads>(m, stage, keys_of(task.k, shape.head_dim));
    load_tile<SwizzledTile<value_dim>, keys, Tiling::threads>(m, stage + Tiling::v_in_stage,
                                                              keys_of(task.v, value_cols(task)));
  };
  load_tile<SwizzledTile<dim>, Tiling::rows, Tiling::threads>(m, Tiling::q_tile, queries(task.q, shape.head_dim));
  load_tile<SwizzledTile<value_dim>, Tiling::rows, Tiling::threads>(m, Tiling::d_out_tile,
                                                                    queries(task.d_out, value_cols(task)));
  load_keys(begin);

  const int row = m.thread() / 32 * 16 * tiles;
  for (int step = begin; step < end; ++step) {
    m.wait();
    m.sync();  // k and v of this step have arrived, and every warp is done with the other stage
    if (step + 1 < end) load_keys(step + 1);
    const int k_tile = Tiling::stages + step % 2 * Tiling::stage_bytes;
    Accumulators<tiles, keys> scores, dp;
    multiply<dim>(m, Tiling::q_tile, row, k_tile, scores);
    multiply<value_dim>(m, Tiling::d_out_tile, row, k_tile + Tiling::v_in_stage, dp);
    gradients(step * keys, scores, dp);
    const Operand<tiles, keys> ds(m, dp);
    multiply_add<dim>(m, ds, k_tile, 0, dq);
  }
}

/// Scales a warp's dq and writes it to global memory. It is staged in the warp's own rows of the q tile, which no other
/// warp reads, so no block barrier is needed.
template <class Tiling, class Machine, class Task>
LYCEUM_DEVICE void store_dq(const Machine& m, const Task& task, const HeadIndices& indices, int first,
                            Accumulators<Tiling::tiles, Tiling::dim>& dq) {
  const AttentionShape& shape = task.shape;
  scale_all(dq, task.scale);
  store<SwizzledTile<Tiling::dim>>(
      m, dq, Tiling::q_tile, m.thread() / 32 * 16 * Tiling::tiles, 0,
      panel_of(task.dq, indices.sequence, shape.query_len, first, indices.head, shape.head_dim, task.aligned));
}

/// Computes dq of one tile of queries of one head, over all keys that they see. One thread block per call.
template <class Tiling, class Machine>
LYCEUM_DEVICE void attention_dq(const Machine& m, const BackwardTask<bfloat16>& task, const BlockOrder::Block& block) {
  constexpr int keys = Tiling::keys, tiles = Tiling::tiles;
  const HeadIndices indices = HeadIndices::of_query_head(task.shape, block.head);
  const CausalOrder order = causal_order(task, indices.sequence);
  const int first = block.tile * Tiling::rows, row = m.thread() / 32 * 16 * tiles;
  const int begin = order.first_tile(first, keys), end = order.end_tile(first, Tiling::rows, keys);
  load_sums<Tiling::rows, Tiling::threads>(m, task, indices.sequence, indices.head, first, Tiling::sums);
  Accumulators<tiles, Tiling::dim> dq;
  dq.clear();
  add_to_dq<Tiling>(m, task, indices, first, begin, end, dq,
                    [&](int key, const Accumulators<tiles, keys>& scores, Accumulators<tiles, keys>& dp) {
                      score_gradients<Tiling>(m, task.scale * log2_of_e, order, first, row, key, scores, dp);
                    });
  store_dq<Tiling>(m, task, indices, first, dq);
}

/// Tile extents of the dk and dv kernel, for heads as in ForwardTiling. Groups of `splits` warps share 16 · tiles keys;
/// the block loops over the queries in tiles of `queries`. All warps of a group compute the same scores, and each sums
/// dim / splits columns of dk and value_dim / splits columns of dv, which is what its registers can hold.
template <int dim_, int warps_, int tiles_, int splits_, int queries_, int value_dim_ = dim_>
struct DkvTiling {
  static constexpr int dim = dim_, value_dim = value_dim_, warps = warps_, tiles = tiles_, splits = splits_,
                       queries = queries_;
  static constexpr int threads = 32 * warps, rows = 16 * tiles * warps / splits;
  static constexpr int columns = dim / splits, value_columns = value_dim / splits;
  static constexpr int k_tile = 0, v_tile = SwizzledTile<dim>::bytes(rows),
                       stages = v_tile + SwizzledTile<value_dim>::bytes(rows);
  // Layout of a stage: q, d_out, log_sum_exp, delta.
  static constexpr int d_out_in_stage = SwizzledTile<dim>::bytes(queries),
                       sums_in_stage = d_out_in_stage + SwizzledTile<value_dim>::bytes(queries);
  static constexpr int stage_bytes = sums_in_stage + 2 * 4 * queries;
  static constexpr int shared_bytes = stages + 2 * stage_bytes;
};

/// The masks of a warp's transposed scores: row r is key `key` + r, column c is query `query` + c.
struct TransposedMask {
  CausalOrder order;
  int key, query;
  // Some keys are later than some query (masked), or before the document or the window of some query (hides).
  bool masked, hides;
  int first_seen;  // keys [key, key + first_seen) are not later than query `query`
  LYCEUM_DEVICE TransposedMask(const CausalOrder& order, int key, int query, int rows, int columns)
      : order(order),
        key(key),
        query(query),
        masked(order.crosses(query, key + rows)),
        hides(order.hides(query + columns, key)),
        first_seen(order.seen(query) - key) {}
  /// True if the key is not later than the query.
  LYCEUM_DEVICE bool seen(int row, int col) const { return !masked || row < first_seen + col; }
  /// True if the key is before the query's document or window.
  LYCEUM_DEVICE bool hidden(int row, int col) const { return hides && row < order.first_key(query + col) - key; }
};

/// Calls f(t, n, number, row, col) for every accumulator of a lane, column by column. `row` and `col` are the element's
/// position in the warp's tile; at[t][n][number] is the accumulator.
template <int tiles, int columns, class F>
LYCEUM_DEVICE void for_each_by_column(int lane, F&& f) {
  LYCEUM_UNROLL
  for (int n = 0; n < columns / 8; ++n) {
    LYCEUM_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int col = 8 * n + MmaLayout::c(lane, i).col;
      LYCEUM_UNROLL
      for (int t = 0; t < tiles; ++t) {
        LYCEUM_UNROLL
        for (int half = 0; half < 2; ++half) f(t, n, 2 * half + i, 16 * t + MmaLayout::c(lane, 2 * half).row, col);
      }
    }
  }
}

/// Sets the elements whose key is before the query's document or window to `nothing`.
template <int tiles, int queries>
LYCEUM_DEVICE void mask_past(const TransposedMask& mask, int lane, float nothing,
                             Accumulators<tiles, queries>& values) {
  if (!mask.hides) return;
  for_each_by_column<tiles, queries>(lane, [&](int t, int n, int i, int row, int col) {
    if (mask.hidden(row, col)) values.at[t][n][i] = nothing;
  });
}

/// Replaces the transposed scores by p. `sums` is the shared-memory offset of the queries' log_sum_exp, which is
/// followed by delta. Padding queries have zeros everywhere, so they contribute nothing.
template <int tiles, int queries, class Machine>
LYCEUM_DEVICE void transposed_probabilities(const Machine& m, float scale, const TransposedMask& mask, int sums,
                                            Accumulators<tiles, queries>& scores) {
  for_each_by_column<tiles, queries>(m.thread() % 32, [&](int t, int n, int i, int row, int col) {
    const float log_sum_exp = *m.template shared<float>(sums + 4 * col) * log2_of_e;
    float& score = scores.at[t][n][i];
    score = mask.seen(row, col) ? m.exp2(score * scale - log_sum_exp) : 0.0f;
  });
  mask_past(mask, m.thread() % 32, 0, scores);
}

/// Replaces dp by ds = p ∘ (dp - delta).
template <int tiles, int queries, class Machine>
LYCEUM_DEVICE void transposed_gradients(const Machine& m, const TransposedMask& mask, int sums,
                                        const Accumulators<tiles, queries>& p, Accumulators<tiles, queries>& dp) {
  for_each_by_column<tiles, queries>(m.thread() % 32, [&](int t, int n, int i, int row, int col) {
    const float delta = *m.template shared<float>(sums + 4 * (queries + col));
    float& gradient = dp.at[t][n][i];
    gradient = mask.seen(row, col) ? p.at[t][n][i] * (gradient - delta) : 0.0f;
  });
}

/// The queries that a block of keys [first_key, first_key + keys) loops over: for each query head that uses the key
/// head, query tiles [first, first + count) of `queries` rows. Step s is tile s % count of the group's head s / count.
struct QueryWalk {
  int sequence, kv_head, group, first, count;
  /// block.head counts the key heads of all sequences.
  template <class Task>
  LYCEUM_DEVICE QueryWalk(const Task& task, const BlockOrder::Block& block, int first_key, int keys, int queries) {
    const int kv_heads = static_cast<int>(task.shape.kv_heads);
    sequence = block.head / kv_heads;
    kv_head = block.head % kv_heads;
    group = static_cast<int>(task.shape.heads) / kv_heads;
    const CausalOrder order = causal_order(task, sequence);
    first = order.first_query(first_key) / queries;
    count = (order.end_query(first_key + keys - 1) + queries - 1) / queries - first;
  }
  /// Number of steps, and the query head and the tile of queries of a step.
  LYCEUM_DEVICE int steps() const { return group * count; }
  LYCEUM_DEVICE int head(int step) const { return kv_head * group + step / count; }
  LYCEUM_DEVICE int tile(int step) const { return first + step % count; }
};

/// Computes dk and dv of a block's keys, which begin at `first`, over all queries that see them, one query head after
/// another. The rows of a warp's products are its keys, the columns are queries.
/// - load_sums(head, query, to) begins copying the values per query that `gradients` needs to shared memory at `to`.
/// - gradients(mask, sums, scores, dp) replaces scores by p, and dp = v·d_outᵀ by ds.
/// Query tiles are double-buffered: the next one is copied while this one is used. All threads of the block call it.
template <class Tiling, class Machine, class Task, class LoadSums, class Gradients>
LYCEUM_DEVICE void write_dkv(const Machine& m, const Task& task, const QueryWalk& walk, int first, LoadSums&& load_sums,
                             Gradients&& gradients) {
  constexpr int dim = Tiling::dim, value_dim = Tiling::value_dim, queries = Tiling::queries, tiles = Tiling::tiles;
  const AttentionShape& shape = task.shape;
  const CausalOrder order = causal_order(task, walk.sequence);
  const int steps = walk.steps();
  const auto keys = [&](const auto& matrix, std::int64_t cols) {
    return panel_of(matrix, walk.sequence, shape.key_len, first, walk.kv_head, cols, task.aligned);
  };
  const auto load_queries = [&](int step) {
    const int head = walk.head(step), query = walk.tile(step) * queries;
    const int stage = Tiling::stages + step % 2 * Tiling::stage_bytes;
    const auto queries_of = [&](const StridedMatrix<const bfloat16>& matrix, std::int64_t cols) {
      return panel_of(matrix, walk.sequence, shape.query_len, query, head, cols, task.aligned);
    };
    load_tile<SwizzledTile<dim>, queries, Tiling::threads>(m, stage, queries_of(task.q, shape.head_dim));
    load_tile<SwizzledTile<value_dim>, queries, Tiling::threads>(m, stage + Tiling::d_out_in_stage,
                                                                 queries_of(task.d_out, value_cols(task)));
    load_sums(head, query, stage + Tiling::sums_in_stage);
  };
  load_tile<SwizzledTile<dim>, Tiling::rows, Tiling::threads>(m, Tiling::k_tile, keys(task.k, shape.head_dim));
  load_tile<SwizzledTile<value_dim>, Tiling::rows, Tiling::threads>(m, Tiling::v_tile, keys(task.v, value_cols(task)));
  if (steps > 0) load_queries(0);

  const int warp = m.thread() / 32, row = warp / Tiling::splits * 16 * tiles;
  const int chunk = warp % Tiling::splits * Tiling::columns / 8;
  const int value_chunk = warp % Tiling::splits * Tiling::value_columns / 8;
  Accumulators<tiles, Tiling::columns> dk;
  Accumulators<tiles, Tiling::value_columns> dv;
  dk.clear();
  dv.clear();
  for (int step = 0; step < steps; ++step) {
    m.wait();
    m.sync();  // the queries of this step have arrived, and every warp is done with the other stage
    if (step + 1 < steps) load_queries(step + 1);
    const int stage = Tiling::stages + step % 2 * Tiling::stage_bytes;
    Accumulators<tiles, queries> scores, dp;
    multiply<dim>(m, Tiling::k_tile, row, stage, scores);
    multiply<value_dim>(m, Tiling::v_tile, row, stage + Tiling::d_out_in_stage, dp);
    const TransposedMask mask(order, first + row, walk.tile(step) * queries, 16 * tiles, queries);
    gradients(mask, stage + Tiling::sums_in_stage, scores, dp);
    const Operand<tiles, queries> p(m, scores);
    multiply_add<value_dim>(m, p, stage + Tiling::d_out_in_stage, value_chunk, dv);
    const Operand<tiles, queries> ds(m, dp);
    multiply_add<dim>(m, ds, stage, chunk, dk);
  }
  m.wait();
  m.sync();  // all warps are done with the k and v tiles, which now stage dk and dv
  scale_all(dk, task.scale);
  store<SwizzledTile<dim>>(m, dk, Tiling::k_tile, row, chunk, keys(task.dk, shape.head_dim));
  store<SwizzledTile<value_dim>>(m, dv, Tiling::v_tile, row, value_chunk, keys(task.dv, value_cols(task)));
}

/// Computes dk and dv of one tile of keys of one key head. One thread block per call.
template <class Tiling, class Machine>
LYCEUM_DEVICE void attention_dkv(const Machine& m, const BackwardTask<bfloat16>& task, const BlockOrder::Block& block) {
  using Scores = Accumulators<Tiling::tiles, Tiling::queries>;
  const int first = block.tile * Tiling::rows;
  const QueryWalk walk(task, block, first, Tiling::rows, Tiling::queries);
  write_dkv<Tiling>(
      m, task, walk, first,
      [&](int head, int query, int to) {
        load_sums<Tiling::queries, Tiling::threads>(m, task, walk.sequence, head, query, to);
      },
      [&](const TransposedMask& mask, int sums, Scores& scores, Scores& dp) {
        transposed_probabilities(m, task.scale * log2_of_e, mask, sums, scores);
        transposed_gradients(m, mask, sums, scores, dp);
      });
}

}  // namespace lyceum::cuda
