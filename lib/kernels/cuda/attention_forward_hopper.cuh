#pragma once

#include "kernels/cuda/attention_forward.cuh"
#include "kernels/cuda/warpgroup_products.cuh"

namespace lyceum::cuda {

/// Tile extents of the forward kernel on Hopper GPUs, for heads as in ForwardTiling. Each of the block's `groups`
/// warpgroups holds 64 queries and loops over the keys in tiles of 128. Shared memory holds the tile of q and two tiles
/// each of k and v (double-buffered).
template <int dim_, int groups_, int value_dim_ = dim_>
struct HopperForwardTiling {
  static constexpr int dim = dim_, value_dim = value_dim_, groups = groups_, tiles = 1, keys = 128;
  static_assert(value_dim <= dim);
  static constexpr int threads = 128 * groups, rows = 64 * groups;
  using QueryTile = PanelTile<dim, rows>;
  using OutTile = PanelTile<value_dim, rows>;
  using KeyTile = PanelTile<dim, keys>;
  using ValueTile = PanelTile<value_dim, keys>;
  static constexpr int q_tile = 0, k_tiles = QueryTile::tile_bytes, v_tiles = k_tiles + 2 * KeyTile::tile_bytes;
  static constexpr int shared_bytes = v_tiles + 2 * ValueTile::tile_bytes;
  /// Shared-memory offsets of the tiles of a step.
  static constexpr LYCEUM_HOST_DEVICE int k_tile(int step) { return k_tiles + step % 2 * KeyTile::tile_bytes; }
  static constexpr LYCEUM_HOST_DEVICE int v_tile(int step) { return v_tiles + step % 2 * ValueTile::tile_bytes; }
};

/// attention_forward() with warpgroup products: the softmax of the next tile's scores is computed while the tensor
/// cores multiply this tile's probabilities by its values. [Shah et al. 2024]
template <class Tiling, class Machine>
LYCEUM_DEVICE void attention_forward_hopper(const Machine& m, const ForwardTask<bfloat16>& task,
                                            const BlockOrder::Block& block) {
  constexpr int keys = Tiling::keys;
  using QueryTile = typename Tiling::QueryTile;
  using KeyTile = typename Tiling::KeyTile;
  using ValueTile = typename Tiling::ValueTile;
  const AttentionShape& shape = task.shape;
  const HeadIndices indices = HeadIndices::of_query_head(shape, block.head);
  const CausalOrder order = causal_order(task, indices.sequence);
  const int first = block.tile * Tiling::rows, row = m.thread() / 32 * 16, group_row = m.thread() / 128 * 64;
  const int begin = order.first_tile(first, keys), steps = order.end_tile(first, Tiling::rows, keys) - begin;
  const auto load_keys = [&](int step) {
    load_tile<KeyTile, keys, Tiling::threads>(m, Tiling::k_tile(step),
                                              panel_of(task.k, indices.sequence, shape.key_len, (begin + step) * keys,
                                                       indices.kv_head, shape.head_dim, task.aligned));
  };
  const auto load_values = [&](int step) {
    load_tile<ValueTile, keys, Tiling::threads>(m, Tiling::v_tile(step),
                                                panel_of(task.v, indices.sequence, shape.key_len, (begin + step) * keys,
                                                         indices.kv_head, value_cols(task), task.aligned));
  };
  Accumulators<1, keys> scores;
  const auto begin_scores = [&](int step) {
    begin_multiply<QueryTile, KeyTile>(m, Tiling::q_tile, group_row, Tiling::k_tile(step), scores);
  };
  OnlineSoftmax<1> softmax;
  const auto probabilities = [&](int step) {
    mask(order, first + row, (begin + step) * keys, m.thread() % 32, -__builtin_huge_valf(), scores);
    softmax.step(m, task.scale * log2_of_e, scores);
  };
  Accumulators<1, Tiling::value_dim> out;
  out.clear();

  load_tile<QueryTile, Tiling::rows, Tiling::threads>(
      m, Tiling::q_tile,
      panel_of(task.q, indices.sequence, shape.query_len, first, indices.head, shape.head_dim, task.aligned));
  load_keys(0);
  m.wait();
  m.publish_copies();
  m.sync();
  if (steps > 1) load_keys(1);
  load_values(0);
  begin_scores(0);
  m.template wait_products<0>(scores);
  probabilities(0);
  Operand<1, keys> p(m, scores);
  for (int step = 0; step < steps; ++step) {
    m.wait();
    m.publish_copies();
    // K of the next step and v of this one have arrived; all are done with k of this step and v of the one before.
    m.sync();
    if (step + 1 == steps) break;
    if (step + 2 < steps) load_keys(step + 2);
    load_values(step + 1);
    begin_scores(step + 1);
    begin_multiply_add<ValueTile>(m, p, Tiling::v_tile(step), out);
    m.template wait_products<1>(scores);
    probabilities(step + 1);
    for (const float sum : softmax.sum[0]) m.compute_before_wait(sum);
    m.template wait_products<0>(out);
    softmax.rescale(out);
    p = Operand<1, keys>(m, scores);
  }
  begin_multiply_add<ValueTile>(m, p, Tiling::v_tile(steps - 1), out);
  m.template wait_products<0>(out);
  finish_rows<Tiling>(m, task, indices, first, row, softmax, out);
}

}  // namespace lyceum::cuda
