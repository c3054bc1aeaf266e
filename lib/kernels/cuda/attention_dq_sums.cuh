#pragma once

#include <cstdint>

#include "kernels/cuda/attention_backward.cuh"

namespace lyceum::cuda {

// Backward on Hopper is one launch after delta's, with five products: a block holds some keys, walks over the queries
// that see them, and adds up dk and dv in registers. What it has to add to a query's dq waits for its turn: blocks add
// to a tile of queries one after another, the one with the last keys first, so that sums have one order whatever the
// GPU.
//
// A block waits only for blocks with later keys of the same head. BlockOrder gives those lower numbers, a GPU starts
// the blocks of a launch in the order of their numbers, and a block that has started runs to its end without those
// behind it: the one with the lowest number never waits, so that in the end nobody does, however few run at a time. And
// blocks seldom wait at all: all of a head walk from their first query on, which is further ahead the later their keys
// are.

/// Sums of dq in the making: of every tile of queries of every query head of every sequence two pieces of 64 x 64, as
/// the threads of a warpgroup hold them.
struct DqSums {
  static constexpr int piece = 64 * 64;
  float* at;             // [pieces(), piece]; not initialised, the first block to come writes
  std::uint32_t* turns;  // [pieces()]: how many blocks have added to it; zeros at first
  int tiles;             // of queries of a sequence

  static std::int64_t tiles_of(const AttentionShape& shape, int queries) {
    return (shape.query_len + queries - 1) / queries;
  }
  static std::int64_t pieces(const AttentionShape& shape, int queries) {
    return 2 * shape.sequences * shape.heads * tiles_of(shape, queries);
  }
  /// `head` counts the query heads of all sequences.
  LYCEUM_HOST_DEVICE std::int64_t index(std::int64_t head, int tile, int which) const {
    return (head * tiles + tile) * 2 + which;
  }
  /// Where thread `thread` of the warpgroup has its four accumulators number `n`, in fours.
  LYCEUM_HOST_DEVICE static int four(int thread, int n) { return 128 * n + thread; }
};

/// When a block with tile `key_tile` of `keys` keys adds to the tile of queries from `query` on: after those with later
/// keys that these queries see.
struct DqTurn {
  int number;  // from 0
  bool last;
  LYCEUM_HOST_DEVICE DqTurn(const CausalOrder& order, int query, int queries, int key_tile, int keys)
      : number(order.end_tile(query, queries, keys) - 1 - key_tile), last(order.first_tile(query, keys) == key_tile) {}
};

struct HopperBackwardTask {
  BackwardTask<bfloat16> of;
  DqSums dq;
};

/// Four accumulators, and the two of a row.
struct alignas(16) Four {
  float of[4];
};
struct alignas(8) Pair {
  float of[2];
};

/// Arrives once for all lanes of a warp.
template <class Machine>
LYCEUM_DEVICE void arrive_as_warp(const Machine& m, int barrier) {
  m.sync_warp();
  if (m.thread() % 32 == 0) m.arrive(barrier);
}

/// Begins to copy a lane's part of the sums that the blocks before have made of a piece.
template <class Tiling, class Machine>
LYCEUM_DEVICE void load_sums_before(const Machine& m, int piece, const float* sums) {
  LYCEUM_NO_UNROLL
  for (int index = m.thread() % 32; index < 256; index += 32) {
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int four = DqSums::four(index / 64 * 32 + index % 8 * 4 + i, index / 8 % 8);
      m.copy_16(Tiling::sums_before(piece) + 16 * four, sums + 4 * four, true);
    }
  }
}

/// Writes a piece of dq out, scaled and rounded: the sums before this block's, if there are any, and its own. A lane
/// reads of the former what it copied. `to` begins at the tile's first query.
template <class Tiling, class Machine>
LYCEUM_DEVICE void write_piece(const Machine& m, int piece, bool any_before, float scale, const Panel<bfloat16>& to) {
  LYCEUM_NO_UNROLL
  for (int index = m.thread() % 32; index < 512; index += 32) {  // row · 8 + chunk, in the order of lanes
    const int quad = index / 128 * 8 + index % 8, half = index / 64 % 2, chunk = index / 8 % 8;
    Chunk values;
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int at = 16 * DqSums::four(4 * quad + i, chunk) + 8 * half;
      Pair sums = *m.template shared<Pair>(Tiling::own_piece(piece) + at);
      if (any_before) {
        const Pair before = *m.template shared<Pair>(Tiling::sums_before(piece) + at);
        for (int j = 0; j < 2; ++j) sums.of[j] = before.of[j] + sums.of[j];
      }
      const std::uint32_t word = m.pack(sums.of[0] * scale, sums.of[1] * scale);
      values.bits[2 * i] = static_cast<std::uint16_t>(word);
      values.bits[2 * i + 1] = static_cast<std::uint16_t>(word >> 16);
    }
    write_chunk(to, Tiling::query_of(piece) + quad / 8 * 16 + half * 8 + quad % 8, Tiling::col_of(piece) / 8 + chunk,
                values);
  }
}

/// What a warp does for each piece: adds what the warpgroup that multiplies hands on to the sums in global memory when
/// it is the block's turn; the last block to come writes dq.
template <class Tiling, class Machine>
LYCEUM_DEVICE void add_up_dq(const Machine& m, const HopperBackwardTask& task, const QueryWalk& walk, int key_tile,
                             int piece) {
  const BackwardTask<bfloat16>& of = task.of;
  const CausalOrder order = causal_order(of, walk.sequence);
  const int lane = m.thread() % 32;
  for (int step = 0; step < walk.steps(); ++step) {
    const int head = walk.head(step), query = walk.tile(step) * Tiling::queries;
    const DqTurn turn(order, query, Tiling::queries, key_tile, Tiling::rows);
    const bool any_before = turn.number > 0;
    const std::int64_t index = task.dq.index(walk.sequence * of.shape.heads + head, walk.tile(step), piece);
    float* const sums = task.dq.at + index * DqSums::piece;
    if (any_before) m.wait_turn(task.dq.turns + index, turn.number);
    if (any_before && turn.last) load_sums_before<Tiling>(m, piece, sums);
    m.wait_barrier(Tiling::piece_there(piece), Tiling::parity(step));
    if (turn.last) {
      m.wait();
      write_piece<Tiling>(
          m, piece, any_before, of.scale,
          panel_of(of.dq, walk.sequence, of.shape.query_len, query, head, of.shape.head_dim, of.aligned));
    } else if (lane == 0) {
      if (any_before) {
        m.begin_bulk_add(sums, Tiling::own_piece(piece), Tiling::piece_bytes);
      } else {
        m.begin_bulk_write(sums, Tiling::own_piece(piece), Tiling::piece_bytes);
      }
      m.wait_bulk_reads();
    }
    arrive_as_warp(m, Tiling::piece_taken(piece));
    if (!turn.last && lane == 0) {
      m.wait_bulk();
      m.pass_turn(task.dq.turns + index, turn.number);
    }
  }
}

}  // namespace lyceum::cuda
