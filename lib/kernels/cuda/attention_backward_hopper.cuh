#pragma once

#include "core/round_up.h"
#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/warpgroup_products.cuh"

namespace lyceum::cuda {

/// Extents for dq on Hopper: each of `groups` warpgroups holds 64 queries and walks over `keys` at a time.
template <int dim_, int groups_, int keys_>
struct HopperDqTiling {
  static constexpr int dim = dim_, groups = groups_, tiles = 1, keys = keys_;
  static constexpr int threads = 128 * groups, rows = 64 * groups;
  using QueryTile = PanelTile<dim, rows>;
  using KeyTile = PanelTile<dim, keys>;
  static constexpr int q_tile = 0, d_out_tile = QueryTile::tile_bytes, stages = 2 * d_out_tile;
  static constexpr int stage_bytes = 2 * KeyTile::tile_bytes, v_in_stage = KeyTile::tile_bytes;
  static constexpr int sums = stages + 2 * stage_bytes, shared_bytes = sums + 2 * 4 * rows;
};

/// attention_dq() with the products of warpgroups.
template <class Tiling, class Machine>
LYCEUM_DEVICE void attention_dq_hopper(const Machine& m, const BackwardTask<bfloat16>& task,
                                       const BlockOrder::Block& block) {
  constexpr int dim = Tiling::dim, keys = Tiling::keys, threads = Tiling::threads;
  using QueryTile = typename Tiling::QueryTile;
  using KeyTile = typename Tiling::KeyTile;
  const AttentionShape& shape = task.shape;
  const HeadPlace place = HeadPlace::of_query_head(shape, block.head);
  const CausalOrder order = causal_order(task, place.sequence);
  const int first = block.tile * Tiling::rows, row = m.thread() / 32 * 16, group_row = m.thread() / 128 * 64;
  const int begin = order.first_tile(first, keys), end = order.end_tile(first, Tiling::rows, keys);
  const auto queries = [&](const auto& matrix) {
    return panel_of(matrix, place.sequence, shape.query_len, first, place.head, shape.head_dim, task.aligned);
  };
  const auto load_keys = [&](int step) {
    const int stage = Tiling::stages + step % 2 * Tiling::stage_bytes;
    const auto keys_of = [&](const Rows<const bfloat16>& matrix) {
      return panel_of(matrix, place.sequence, shape.key_len, step * keys, place.kv_head, shape.head_dim, task.aligned);
    };
    load_tile<KeyTile, keys, threads>(m, stage, keys_of(task.k));
    load_tile<KeyTile, keys, threads>(m, stage + Tiling::v_in_stage, keys_of(task.v));
  };
  load_tile<QueryTile, Tiling::rows, threads>(m, Tiling::q_tile, queries(task.q));
  load_tile<QueryTile, Tiling::rows, threads>(m, Tiling::d_out_tile, queries(task.d_out));
  load_sums<Tiling::rows, threads>(m, task, place.sequence, place.head, first, Tiling::sums);
  load_keys(begin);

  Accumulators<1, dim> dq;
  dq.clear();
  for (int step = begin; step < end; ++step) {
    m.wait();
    m.publish_copies();
    m.sync();  // these keys and values are there; nobody reads the ones before any more
    if (step + 1 < end) load_keys(step + 1);
    const int k_tile = Tiling::stages + step % 2 * Tiling::stage_bytes;
    Accumulators<1, keys> scores, dp;
    begin_multiply<QueryTile, KeyTile>(m, Tiling::q_tile, group_row, k_tile, scores);
    begin_multiply<QueryTile, KeyTile>(m, Tiling::d_out_tile, group_row, k_tile + Tiling::v_in_stage, dp);
    m.template wait_products<0>(scores, dp);
    score_gradients<Tiling>(m, task.scale * log2_of_e, order, first, row, step * keys, scores, dp);
    Operand<1, keys> ds(m, dp);
    begin_multiply_add<KeyTile>(m, ds, k_tile, dq);
    m.template wait_products<0>(dq);
  }
  m.sync();  // nobody reads queries any more: their tile is where the results pass through
  scale_all(dq, task.scale);
  store<QueryTile>(m, dq, Tiling::q_tile, row, 0, queries(task.dq));
}

/// Extents for dk and dv on Hopper: each of `groups` warpgroups holds 64 keys and walks over `queries` at a time.
template <int dim_, int groups_, int queries_>
struct HopperDkvTiling {
  static constexpr int dim = dim_, groups = groups_, tiles = 1, queries = queries_;
  static constexpr int threads = 128 * groups, rows = 64 * groups;
  using KeyTile = PanelTile<dim, rows>;
  using QueryTile = PanelTile<dim, queries>;
  static constexpr int k_tile = 0, v_tile = KeyTile::tile_bytes, stages = 2 * v_tile;
  // A stage: q, d_out, log_sum_exp, delta; whole multiples of 1024 bytes.
  static constexpr int d_out_in_stage = QueryTile::tile_bytes, sums_in_stage = 2 * d_out_in_stage;
  static constexpr int stage_bytes = sums_in_stage + round_up(2 * 4 * queries, 1024);
  static constexpr int shared_bytes = stages + 2 * stage_bytes;
};

/// attention_dkv() with the products of warpgroups: dv is summed while ds is computed.
template <class Tiling, class Machine>
LYCEUM_DEVICE void attention_dkv_hopper(const Machine& m, const BackwardTask<bfloat16>& task,
                                        const BlockOrder::Block& block) {
  constexpr int dim = Tiling::dim, queries = Tiling::queries, threads = Tiling::threads;
  using QueryTile = typename Tiling::QueryTile;
  using KeyTile = typename Tiling::KeyTile;
  const AttentionShape& shape = task.shape;
  const int first = block.tile * Tiling::rows, row = m.thread() / 32 * 16, group_row = m.thread() / 128 * 64;
  const QueryWalk walk(task, block, first, Tiling::rows, queries);
  const CausalOrder order = causal_order(task, walk.sequence);
  const int steps = walk.steps();
  const auto keys = [&](const auto& matrix) {
    return panel_of(matrix, walk.sequence, shape.key_len, first, walk.kv_head, shape.head_dim, task.aligned);
  };
  const auto load_queries = [&](int step) {
    const int head = walk.head(step), query = walk.tile(step) * queries;
    const int stage = Tiling::stages + step % 2 * Tiling::stage_bytes;
    const auto queries_of = [&](const Rows<const bfloat16>& matrix) {
      return panel_of(matrix, walk.sequence, shape.query_len, query, head, shape.head_dim, task.aligned);
    };
    load_tile<QueryTile, queries, threads>(m, stage, queries_of(task.q));
    load_tile<QueryTile, queries, threads>(m, stage + Tiling::d_out_in_stage, queries_of(task.d_out));
    load_sums<queries, threads>(m, task, walk.sequence, head, query, stage + Tiling::sums_in_stage);
  };
  load_tile<KeyTile, Tiling::rows, threads>(m, Tiling::k_tile, keys(task.k));
  load_tile<KeyTile, Tiling::rows, threads>(m, Tiling::v_tile, keys(task.v));
  if (steps > 0) load_queries(0);

  Accumulators<1, dim> dk, dv;
  dk.clear();
  dv.clear();
  for (int step = 0; step < steps; ++step) {
    m.wait();
    m.publish_copies();
    m.sync();  // these queries are there; nobody reads the ones before any more
    if (step + 1 < steps) load_queries(step + 1);
    const int stage = Tiling::stages + step % 2 * Tiling::stage_bytes;
    Accumulators<1, queries> scores, dp;
    begin_multiply<KeyTile, QueryTile>(m, Tiling::k_tile, group_row, stage, scores);
    begin_multiply<KeyTile, QueryTile>(m, Tiling::v_tile, group_row, stage + Tiling::d_out_in_stage, dp);
    const TransposedMask mask(order, first + row, walk.tile(step) * queries, 16, queries);
    m.template wait_products<1>(scores);
    transposed_probabilities(m, task.scale * log2_of_e, mask, stage + Tiling::sums_in_stage, scores);
    Operand<1, queries> p(m, scores);
    begin_multiply_add<QueryTile>(m, p, stage + Tiling::d_out_in_stage, dv);
    m.template wait_products<1>(dp);
    transposed_gradients(m, mask, stage + Tiling::sums_in_stage, scores, dp);
    Operand<1, queries> ds(m, dp);
    begin_multiply_add<QueryTile>(m, ds, stage, dk);
    m.template wait_products<0>(dk, dv);
  }
  m.wait();
  m.sync();  // nobody reads keys and values any more: their tiles are where the results pass through
  scale_all(dk, task.scale);
  store<KeyTile>(m, dk, Tiling::k_tile, row, 0, keys(task.dk));
  store<KeyTile>(m, dv, Tiling::v_tile, row, 0, keys(task.dv));
}

}  // namespace lyceum::cuda
