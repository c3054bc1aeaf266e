#pragma once

#include <cstdint>

#include "core/round_up.h"
#include "kernels/cuda/attention_dq_sums.cuh"
#include "kernels/cuda/warpgroup_products.cuh"

namespace lyceum::cuda {

/// Tile extents of the backward kernel for Hopper GPUs (sm_90a), for heads of queries, keys and values of up to `dim`
/// columns. A block has three warpgroups and 128 keys:
/// - Warpgroup 0: warps 0 and 1 (`loaders` threads) load tiles; warps 2 and 3 each add one half of the block's dq to
///   global memory.
/// - Warpgroups 1 and 2 multiply. Each holds dk and dv of 64 keys in registers and loops over the queries in tiles of
///   `queries`, keeping scores and dp of 64 queries at a time.
/// A tile of dq, [queries, dim], consists of two 64 x 64 sub-tiles, see DqSums: side by side if dim is 128, else one
/// below the other.
template <int dim_, int queries_>
struct HopperBackwardTiling {
  static constexpr int dim = dim_, queries = queries_, rows = 128, loaders = 64, threads = 3 * 128;
  static_assert(dim * queries == 2 * DqSums::sub_tile_elements && dim % 64 == 0 && queries % 64 == 0);
  using KeyTile = PanelTile<dim, rows>;
  using QueryTile = PanelTile<dim, queries>;
  using ScoreTile = PanelTile<queries, rows>;
  static constexpr int k_tile = 0, v_tile = KeyTile::tile_bytes, stages = 2 * v_tile;
  // Layout of a stage: q, d_out, log_sum_exp, delta. Its size is a multiple of 1024 bytes.
  static constexpr int d_out_in_stage = QueryTile::tile_bytes, sums_in_stage = 2 * d_out_in_stage;
  static constexpr int stage_bytes = sums_in_stage + round_up(2 * 4 * queries, 1024);
  static constexpr int ds_tiles = stages + 2 * stage_bytes, sub_tile_bytes = 4 * DqSums::sub_tile_elements;
  static constexpr int dq_sub_tiles = ds_tiles + 2 * ScoreTile::tile_bytes,
                       barriers = dq_sub_tiles + 4 * sub_tile_bytes;
  static constexpr int block_index = barriers + 10 * 8, shared_bytes = block_index + 8;

  /// Shared-memory offsets of the stage and of the ds tile of a step; both are double-buffered.
  static constexpr LYCEUM_HOST_DEVICE int stage(int step) { return stages + step % 2 * stage_bytes; }
  static constexpr LYCEUM_HOST_DEVICE int ds_tile(int step) { return ds_tiles + step % 2 * ScoreTile::tile_bytes; }
  /// Shared-memory offsets of this block's contribution to a sub-tile of dq, and of the sum of the earlier blocks'
  /// contributions.
  static constexpr LYCEUM_HOST_DEVICE int own_sub_tile(int sub_tile) {
    return dq_sub_tiles + sub_tile * sub_tile_bytes;
  }
  static constexpr LYCEUM_HOST_DEVICE int sums_before(int sub_tile) { return own_sub_tile(2 + sub_tile); }
  /// The first query and the first column of a sub-tile within the tile of queries.
  static constexpr LYCEUM_HOST_DEVICE int query_of(int sub_tile) { return queries == 64 ? 0 : 64 * sub_tile; }
  static constexpr LYCEUM_HOST_DEVICE int col_of(int sub_tile) { return dim == 64 ? 0 : 64 * sub_tile; }

  /// Shared-memory offsets of the mbarriers.
  /// - keys_loaded: k and v are in shared memory. Loaders arrive, multiplying warps wait.
  /// - ds_written: both warpgroups have written ds of a step. Multiplying warps arrive and wait.
  /// - loaded(step): the queries of the step are in shared memory. Loaders arrive, multiplying warps wait.
  /// - used(step): the stage of the step may be overwritten. Multiplying warps arrive, loaders wait.
  /// - sub_tile_written(sub_tile): own_sub_tile(sub_tile) is complete. The four warps of the warpgroup that computes it
  ///   arrive, the warp that adds it waits.
  /// - sub_tile_read(sub_tile): own_sub_tile(sub_tile) may be overwritten. The warp that adds it arrives, the
  ///   warpgroup waits.
  static constexpr int keys_loaded = barriers, ds_written = barriers + 8;
  static constexpr LYCEUM_HOST_DEVICE int loaded(int step) { return barriers + 16 + step % 2 * 8; }
  static constexpr LYCEUM_HOST_DEVICE int used(int step) { return barriers + 32 + step % 2 * 8; }
  static constexpr LYCEUM_HOST_DEVICE int sub_tile_written(int sub_tile) { return barriers + 48 + sub_tile * 8; }
  static constexpr LYCEUM_HOST_DEVICE int sub_tile_read(int sub_tile) { return barriers + 64 + sub_tile * 8; }
  /// Phase parity at a step: parity() for barriers that complete once per step, stage_parity() for those of the two
  /// stages, which complete every other step.
  static constexpr LYCEUM_HOST_DEVICE std::uint32_t parity(int step) { return static_cast<std::uint32_t>(step) & 1u; }
  static constexpr LYCEUM_HOST_DEVICE std::uint32_t stage_parity(int step) { return parity(step / 2); }

  /// Initialises the barriers. One thread calls it, before the block's first barrier.
  template <class Machine>
  LYCEUM_DEVICE static void initialise_barriers(const Machine& m) {
    m.initialise_barrier(keys_loaded, loaders);
    m.initialise_barrier(ds_written, 8);
    for (int i = 0; i < 2; ++i) {
      m.initialise_barrier(loaded(i), loaders);
      m.initialise_barrier(used(i), 8);
      m.initialise_barrier(sub_tile_written(i), 4);
      m.initialise_barrier(sub_tile_read(i), 1);
    }
    m.publish_barriers();
  }
};

/// The loop of the `loaders` threads: loads the block's keys and values, then all query tiles that see them, at most
/// two steps ahead of the multiplying warps.
template <class Tiling, class Machine>
LYCEUM_DEVICE void load_backward(const Machine& m, const BackwardTask<bfloat16>& task, const QueryWalk& walk,
                                 int first) {
  constexpr int loaders = Tiling::loaders;
  const AttentionShape& shape = task.shape;
  const auto arrive = [&](int barrier) {
    if (task.aligned) return m.arrive_after_copies(barrier);
    m.wait();  // the copies were ordinary stores, which arrive_after_copies() does not wait for
    m.arrive(barrier);
  };
  const auto load_keys = [&](int tile, const StridedMatrix<const bfloat16>& from, std::int64_t cols) {
    load_tile<typename Tiling::KeyTile, Tiling::rows, loaders>(
        m, tile, panel_of(from, walk.sequence, shape.key_len, first, walk.kv_head, cols, task.aligned));
  };
  load_keys(Tiling::k_tile, task.k, shape.head_dim);
  load_keys(Tiling::v_tile, task.v, value_cols(task));
  arrive(Tiling::keys_loaded);
  for (int step = 0; step < walk.steps(); ++step) {
    const int head = walk.head(step), query = walk.tile(step) * Tiling::queries, stage = Tiling::stage(step);
    const auto load_queries = [&](int tile, const StridedMatrix<const bfloat16>& from, std::int64_t cols) {
      load_tile<typename Tiling::QueryTile, Tiling::queries, loaders>(
          m, tile, panel_of(from, walk.sequence, shape.query_len, query, head, cols, task.aligned));
    };
    m.wait_barrier(Tiling::used(step), Tiling::stage_parity(step) ^ 1u);
    load_queries(stage, task.q, shape.head_dim);
    load_queries(stage + Tiling::d_out_in_stage, task.d_out, value_cols(task));
    load_sums<Tiling::queries, loaders>(m, task, walk.sequence, head, query, stage + Tiling::sums_in_stage);
    arrive(Tiling::loaded(step));
  }
  m.wait();
}

/// The queries that see the keys of a lane. A lane holds two of the warp's 16 keys, which begin at `key`; queries
/// [begin[i], end[i]) see the lane's key i.
struct LaneKeys {
  int key, begin[2], end[2];
  LYCEUM_DEVICE LaneKeys(const CausalOrder& order, int key, int lane) : key(key) {
    for (int half = 0; half < 2; ++half) {
      const int own = key + MmaLayout::c(lane, 2 * half).row;
      begin[half] = order.first_query(own);
      end[half] = order.end_query(own);
    }
  }
  /// True if some of the 64 queries from `query` on do not see some of the warp's keys.
  LYCEUM_DEVICE bool masks(const CausalOrder& order, int query) const {
    return order.crosses(query, key + 16) || order.hides(query + 64, key);
  }
  /// Zeroes the elements whose key is masked for the query.
  LYCEUM_DEVICE void mask(int lane, int query, Accumulators<1, 64>& values) const {
    for_each_by_column<1, 64>(lane, [&](int t, int n, int i, int, int col) {
      if (query + col < begin[i / 2] || query + col >= end[i / 2]) values.at[t][n][i] = 0.0f;
    });
  }
};

/// Shared-memory offsets of the data of 64 queries, and the first query's position in the sequence.
struct QueryBlock {
  int q_tile, d_out_tile, log_sum_exp, delta, query;
};

/// Computes p and ds, rounded to bf16, for 64 keys (rows, from `key_row` of the key tiles on) and 64 queries (columns).
/// Begins dv += pᵀ · d_out and returns while that product runs.
template <class Tiling, class Machine>
LYCEUM_DEVICE void block_gradients(const Machine& m, const BackwardTask<bfloat16>& task, const CausalOrder& order,
                                   const LaneKeys& keys, int key_row, const QueryBlock& at, Operand<1, 64>& p,
                                   Operand<1, 64>& ds, Accumulators<1, Tiling::dim>& dv) {
  using KeyTile = typename Tiling::KeyTile;
  using QueryTile = typename Tiling::QueryTile;
  const int lane = m.thread() % 32;
  const bool masked = keys.masks(order, at.query);
  const float scale = task.scale * log2_of_e;
  Accumulators<1, 64> scores, dp;
  begin_multiply<KeyTile, QueryTile>(m, Tiling::k_tile, key_row, at.q_tile, scores);
  begin_multiply<KeyTile, QueryTile>(m, Tiling::v_tile, key_row, at.d_out_tile, dp);
  m.template wait_products<1>(scores);
  for_each_by_column<1, 64>(lane, [&](int t, int n, int i, int, int col) {
    const float log_sum_exp = *m.template shared<float>(at.log_sum_exp + 4 * col) * log2_of_e;
    scores.at[t][n][i] = m.exp2(scores.at[t][n][i] * scale - log_sum_exp);
  });
  if (masked) keys.mask(lane, at.query, scores);
  p = Operand<1, 64>(m, scores);
  begin_multiply_add<QueryTile>(m, p, at.d_out_tile, dv);
  m.template wait_products<1>(dp);
  for_each_by_column<1, 64>(lane, [&](int t, int n, int i, int, int col) {
    const float delta = *m.template shared<float>(at.delta + 4 * col);
    dp.at[t][n][i] = scores.at[t][n][i] * (dp.at[t][n][i] - delta);
  });
  if (masked) keys.mask(lane, at.query, dp);
  ds = Operand<1, 64>(m, dp);
}

/// Writes a warp's ds to shared memory, at the rows of its keys, from `row` on, of a panel of 64 queries. hide_origin()
/// makes the compiler compute the offsets anew in each step: that takes few instructions, while keeping them would take
/// too many registers.
template <class Panels, class Machine>
LYCEUM_DEVICE void share_ds(const Machine& m, const Operand<1, 64>& ds, int panel, int row) {
  const int lane = m.thread() % 32;
  const MatrixPosition at = MmaLayout::a(lane, 0);
  const int first = m.hide_origin(Panels::offset(row + at.row, 0) + 2 * at.col);
  LYCEUM_UNROLL
  for (int k = 0; k < 4; ++k) {
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {  // word i is 8 · (i % 2) rows and i / 2 chunks from word 0
      m.write_shared(panel + (first ^ Panels::chunk_bits(2 * k + i / 2)) + i % 2 * 1024, ds.at[0][k][i]);
    }
  }
}

/// Begins dq = ds · K for one sub-tile, over all 128 keys of the block, as one group of products.
template <class Tiling, class Machine>
LYCEUM_DEVICE void begin_dq(const Machine& m, int ds_tile, int sub_tile, Accumulators<1, 64>& dq) {
  using KeyTile = typename Tiling::KeyTile;
  using ScoreTile = typename Tiling::ScoreTile;
  const int ds = ds_tile + Tiling::query_of(sub_tile) / 64 * ScoreTile::panel_bytes;
  const int keys = Tiling::k_tile + Tiling::col_of(sub_tile) / 64 * KeyTile::panel_bytes;
  m.begin_products(dq);
  LYCEUM_UNROLL
  for (int k = 0; k < Tiling::rows / 16; ++k) {
    m.template multiply_shared<64, true, true>(
        dq.at[0],
        MatrixDescriptor::by_summed_rows(m.shared_address(ds + ScoreTile::summed_rows(k)), ScoreTile::panel_bytes),
        MatrixDescriptor::by_summed_rows(m.shared_address(keys + KeyTile::summed_rows(k)), KeyTile::panel_bytes),
        k > 0);
  }
  m.end_group();
}

/// Writes a sub-tile of dq to shared memory for the warp that adds it to global memory, after that warp has released
/// the sub-tile of the step before.
template <class Tiling, class Machine>
LYCEUM_DEVICE void pass_on_dq(const Machine& m, const Accumulators<1, 64>& dq, int sub_tile, int step) {
  m.wait_barrier(Tiling::sub_tile_read(sub_tile), Tiling::parity(step) ^ 1u);
  LYCEUM_UNROLL
  for (int n = 0; n < 8; ++n) {
    const float(&of)[4] = dq.at[0][n];
    m.write_shared(Tiling::own_sub_tile(sub_tile) + 16 * DqSums::four(m.thread() % 128, n),
                   Four{{of[0], of[1], of[2], of[3]}});
  }
  m.publish_copies();
  arrive_as_warp(m, Tiling::sub_tile_written(sub_tile));
}

/// One step of a multiplying warpgroup: adds the queries of the step to dk and dv of its keys and passes its sub-tile
/// of dq on. The product for dv runs while ds is computed, the one for dk while dq is passed on.
template <class Tiling, class Machine>
LYCEUM_DEVICE void multiply_step(const Machine& m, const BackwardTask<bfloat16>& task, const CausalOrder& order,
                                 const LaneKeys& keys, int step, int query, int group, Accumulators<1, Tiling::dim>& dk,
                                 Accumulators<1, Tiling::dim>& dv) {
  using QueryTile = typename Tiling::QueryTile;
  constexpr int blocks = Tiling::queries / 64;
  const int stage = Tiling::stage(step), row = 64 * group + m.thread() / 32 % 4 * 16;
  m.wait_barrier(Tiling::loaded(step), Tiling::stage_parity(step));
  m.publish_copies();  // the loaders wrote with ordinary copies, not TMA
  Operand<1, 64> p, ds;
  LYCEUM_UNROLL
  for (int block = 0; block < blocks; ++block) {
    const int q_tile = stage + QueryTile::columns(64 * block, 0), sums = stage + Tiling::sums_in_stage + 256 * block;
    block_gradients<Tiling>(
        m, task, order, keys, 64 * group,
        {q_tile, q_tile + Tiling::d_out_in_stage, sums, sums + 4 * Tiling::queries, query + 64 * block}, p, ds, dv);
    // The ds tiles are double-buffered. Overwriting this one is safe: the other warpgroup arrived at ds_written in the
    // step before, so it has finished reading ds of two steps ago.
    share_ds<typename Tiling::ScoreTile>(m, ds, Tiling::ds_tile(step) + block * Tiling::ScoreTile::panel_bytes, row);
    if (block + 1 < blocks) begin_multiply_add<QueryTile>(m, ds, q_tile, dk);
  }
  m.publish_copies();
  arrive_as_warp(m, Tiling::ds_written);
  m.wait_barrier(Tiling::ds_written, Tiling::parity(step));
  Accumulators<1, 64> dq;
  begin_dq<Tiling>(m, Tiling::ds_tile(step), group, dq);
  begin_multiply_add<QueryTile>(m, ds, stage + QueryTile::columns(Tiling::queries - 64, 0), dk);
  m.template wait_products<1>(dv, dq);
  pass_on_dq<Tiling>(m, dq, group, step);
  m.template wait_products<0>(dk);
  arrive_as_warp(m, Tiling::used(step));
}

/// The loop of a multiplying warpgroup (`group` 0 or 1): computes dk and dv of its 64 keys and one sub-tile of the
/// block's contribution to dq in each step.
template <class Tiling, class Machine>
LYCEUM_DEVICE void multiply_backward(const Machine& m, const BackwardTask<bfloat16>& task, const QueryWalk& walk,
                                     int first, int group) {
  constexpr int dim = Tiling::dim;
  using KeyTile = typename Tiling::KeyTile;
  const CausalOrder order = causal_order(task, walk.sequence);
  const int row = 64 * group + m.thread() / 32 % 4 * 16;
  const LaneKeys lane_keys(order, first + row, m.thread() % 32);
  Accumulators<1, dim> dk, dv;
  dk.clear();
  dv.clear();
  m.wait_barrier(Tiling::keys_loaded, 0);
  for (int step = 0; step < walk.steps(); ++step) {
    multiply_step<Tiling>(m, task, order, lane_keys, step, walk.tile(step) * Tiling::queries, group, dk, dv);
  }
  arrive_as_warp(m, Tiling::ds_written);
  // Both warpgroups are done with the k and v tiles, which now stage dk and dv.
  m.wait_barrier(Tiling::ds_written, Tiling::parity(walk.steps()));
  const auto keys = [&](const StridedMatrix<bfloat16>& matrix, std::int64_t cols) {
    return panel_of(matrix, walk.sequence, task.shape.key_len, first, walk.kv_head, cols, task.aligned);
  };
  scale_all(dk, task.scale);
  store<KeyTile>(m, dk, Tiling::k_tile, row, 0, keys(task.dk, task.shape.head_dim));
  store<KeyTile>(m, dv, Tiling::v_tile, row, 0, keys(task.dv, value_cols(task)));
}

/// Computes dk and dv of one tile of 128 keys of one key head, and adds their contribution to dq. One thread block per
/// call; blocks take the tiles of `order` in the order in which they start.
template <class Tiling, class Machine>
LYCEUM_DEVICE void attention_backward_hopper(const Machine& m, const HopperBackwardTask& task,
                                             const BlockOrder& order) {
  if (m.thread() == 0) {
    Tiling::initialise_barriers(m);
    m.write_shared(Tiling::block_index, m.count_up(task.dq.started));
  }
  m.sync();
  const BlockOrder::Block block = order.at(*m.template shared<std::uint32_t>(Tiling::block_index));
  const int first = block.tile * Tiling::rows, warp = m.uniform(m.thread() / 32);
  const QueryWalk walk(task.of, block, first, Tiling::rows, Tiling::queries);
  if (warp < 4) {
    m.template decrease_registers<40>();
    if (warp < 2) {
      load_backward<Tiling>(m, task.of, walk, first);
    } else {
      add_up_dq<Tiling>(m, task, walk, block.tile, warp - 2);
    }
  } else {
    m.template increase_registers<232>();
    multiply_backward<Tiling>(m, task.of, walk, first, warp / 4 - 1);
  }
}

}  // namespace lyceum::cuda
