#pragma once

#include <cstdint>

#include "kernels/cuda/attention_backward.cuh"

namespace lyceum::cuda {

// The backward pass on Hopper is one kernel launch after that of delta, with five products instead of seven. A block
// holds some keys, loops over the queries that see them, and sums dk and dv in registers. Several blocks contribute to
// dq of the same query. They take turns: blocks add to a tile of queries one after another, the one with the last keys
// first. So the order of summation is the same on every GPU.
//
// Taking turns cannot deadlock. A block waits only for blocks with later keys of the same head. BlockOrder gives those
// lower indices, and a block's index is the number of blocks that have started before it, whatever order the GPU starts
// them in. So the running block with the lowest index never waits, however few blocks run at a time. In practice blocks
// rarely wait: all blocks of a head loop upwards from the first query that sees their keys, and that query is later for
// later keys, so these blocks are ahead from the start.

/// The f32 sums of dq in global memory. Each tile of queries of each query head of each sequence has two sub-tiles of
/// 64 x 64 elements, stored in the order in which the threads of a warpgroup hold them in registers.
struct DqSums {
  static constexpr int sub_tile_elements = 64 * 64;
  float* at;               // [sub_tiles(), sub_tile_elements]; uninitialised: the first block writes instead of adding
  std::uint32_t* turns;    // [sub_tiles()]: the number of blocks that have added to a sub-tile; zero at launch
  std::uint32_t* started;  // [1]: the number of blocks that have started; zero at launch
  int tiles;               // query tiles per sequence

  /// Number of tiles per sequence, and of sub-tiles in total, if a tile has `queries` queries.
  static std::int64_t tiles_of(const AttentionShape& shape, int queries) {
    return (shape.query_len + queries - 1) / queries;
  }
  static std::int64_t sub_tiles(const AttentionShape& shape, int queries) {
    return 2 * shape.sequences * shape.heads * tiles_of(shape, queries);
  }
  /// Index of sub-tile `which` (0 or 1) of a tile. `head` counts the query heads of all sequences.
  LYCEUM_HOST_DEVICE std::int64_t index(std::int64_t head, int tile, int which) const {
    return (head * tiles + tile) * 2 + which;
  }
  /// Offset, in units of four floats, of accumulators 4n to 4n + 3 of thread `thread` of the warpgroup within a
  /// sub-tile.
  LYCEUM_HOST_DEVICE static int four(int thread, int n) { return 128 * n + thread; }
};

/// The turn of the block with key tile `key_tile`, of `keys` keys, at the tile of queries that begins at `query`.
/// Blocks with later keys that these queries see come before it.
struct DqTurn {
  int number;  // from 0
  bool last;
  LYCEUM_HOST_DEVICE DqTurn(const CausalOrder& order, int query, int queries, int key_tile, int keys)
      : number(order.end_tile(query, queries, keys) - 1 - key_tile), last(order.first_tile(query, keys) == key_tile) {}
};

/// The parameter of the Hopper kernel: `of` is the task of the attention, `dq` the sums of its dq.
struct HopperBackwardTask {
  BackwardTask<bfloat16> of;
  DqSums dq;
};

/// Types for 16-byte and 8-byte accesses to a sub-tile: the four accumulators of a lane for one n (see MmaLayout::c),
/// and the two of them that are in one row.
struct alignas(16) Four {
  float of[4];
};
struct alignas(8) Pair {
  float of[2];
};

/// Arrives at a barrier once for the whole warp, after all its lanes have got here.
template <class Machine>
LYCEUM_DEVICE void arrive_as_warp(const Machine& m, int barrier) {
  m.sync_warp();
  if (m.thread() % 32 == 0) m.arrive(barrier);
}

/// Begins copying a sub-tile of the earlier blocks' sums from global to shared memory. All lanes of one warp call it;
/// each copies the share that it reads in write_sub_tile(), and must call wait() before that.
template <class Tiling, class Machine>
LYCEUM_DEVICE void load_sums_before(const Machine& m, int sub_tile, const float* sums) {
  LYCEUM_NO_UNROLL
  for (int index = m.thread() % 32; index < 256; index += 32) {
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int four = DqSums::four(index / 64 * 32 + index % 8 * 4 + i, index / 8 % 8);
      m.copy_16(Tiling::sums_before(sub_tile) + 16 * four, sums + 4 * four, true);
    }
  }
}

/// Writes a sub-tile of dq to global memory, scaled and rounded to bf16: this block's contribution, plus the earlier
/// blocks' sums if `any_before`. A lane reads only those sums that it copied itself, so its own wait() is enough. `to`
/// begins at the tile's first query.
template <class Tiling, class Machine>
LYCEUM_DEVICE void write_sub_tile(const Machine& m, int sub_tile, bool any_before, float scale,
                                  const Panel<bfloat16>& to) {
  LYCEUM_NO_UNROLL
  // Index is row · 8 + chunk, with rows permuted to match the accumulators.
  for (int index = m.thread() % 32; index < 512; index += 32) {
    const int quad = index / 128 * 8 + index % 8, half = index / 64 % 2, chunk = index / 8 % 8;
    EightElements values;
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int at = 16 * DqSums::four(4 * quad + i, chunk) + 8 * half;
      Pair sums = *m.template shared<Pair>(Tiling::own_sub_tile(sub_tile) + at);
      if (any_before) {
        const Pair before = *m.template shared<Pair>(Tiling::sums_before(sub_tile) + at);
        for (int j = 0; j < 2; ++j) sums.of[j] = before.of[j] + sums.of[j];
      }
      const std::uint32_t word = m.pack(sums.of[0] * scale, sums.of[1] * scale);
      values.bits[2 * i] = static_cast<std::uint16_t>(word);
      values.bits[2 * i + 1] = static_cast<std::uint16_t>(word >> 16);
    }
    write_chunk(to, Tiling::query_of(sub_tile) + quad / 8 * 16 + half * 8 + quad % 8,
                Tiling::col_of(sub_tile) / 8 + chunk, values);
  }
}

/// The loop of the warp that is responsible for sub-tile `sub_tile`. In each step it waits for its block's turn and for
/// the warpgroup that computes the sub-tile, then adds the sub-tile to the sums in global memory. If its block has the
/// last turn, it writes dq instead.
template <class Tiling, class Machine>
LYCEUM_DEVICE void add_up_dq(const Machine& m, const HopperBackwardTask& task, const QueryWalk& walk, int key_tile,
                             int sub_tile) {
  const BackwardTask<bfloat16>& of = task.of;
  const CausalOrder order = causal_order(of, walk.sequence);
  const int lane = m.thread() % 32;
  for (int step = 0; step < walk.steps(); ++step) {
    const int head = walk.head(step), query = walk.tile(step) * Tiling::queries;
    const DqTurn turn(order, query, Tiling::queries, key_tile, Tiling::rows);
    const bool any_before = turn.number > 0;
    const std::int64_t index = task.dq.index(walk.sequence * of.shape.heads + head, walk.tile(step), sub_tile);
    float* const sums = task.dq.at + index * DqSums::sub_tile_elements;
    if (any_before) m.wait_turn(task.dq.turns + index, turn.number);
    if (any_before && turn.last) load_sums_before<Tiling>(m, sub_tile, sums);
    m.wait_barrier(Tiling::sub_tile_written(sub_tile), Tiling::parity(step));
    if (turn.last) {
      m.wait();
      write_sub_tile<Tiling>(
          m, sub_tile, any_before, of.scale,
          panel_of(of.dq, walk.sequence, of.shape.query_len, query, head, of.shape.head_dim, of.aligned));
    } else if (lane == 0) {
      if (any_before) {
        m.begin_bulk_add(sums, Tiling::own_sub_tile(sub_tile), Tiling::sub_tile_bytes);
      } else {
        m.begin_bulk_write(sums, Tiling::own_sub_tile(sub_tile), Tiling::sub_tile_bytes);
      }
      m.wait_bulk_reads();
    }
    arrive_as_warp(m, Tiling::sub_tile_read(sub_tile));
    if (!turn.last && lane == 0) {
      m.wait_bulk();
      m.pass_turn(task.dq.turns + index, turn.number);
    }
  }
}

}  // namespace lyceum::cuda
