#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/grouped_wgmma_layout.h"
#include "kernels/cuda/grouped_wgmma_results.cuh"

// A block of grouped products on Hopper: one warpgroup loads, two multiply. The machine is a HopperMachine, or in tests
// its emulation on the host; a TensorMap is what that machine loads boxes by.

namespace lyceum::grouped {

/// Tensor maps of each slot's operands, and of its results where they are written by way of shared memory.
template <class TensorMap>
struct MapsBySlot {
  const TensorMap *a, *b, *c;
};

/// Where stages, results and barriers lie in shared memory.
template <class Tiling>
struct StageOffsets {
  LYCEUM_HOST_DEVICE static int a(int stage) { return stage * Tiling::stage_bytes; }
  LYCEUM_HOST_DEVICE static int b(int stage) { return a(stage) + Tiling::a_bytes; }
  /// The boxes of warp `warp` of those that multiply.
  LYCEUM_HOST_DEVICE static int results(int warp) { return a(Tiling::stages) + 2 * warp * Tiling::result_box; }
  LYCEUM_HOST_DEVICE static int full(int stage) { return a(Tiling::stages) + Tiling::result_bytes + 8 * stage; }
  LYCEUM_HOST_DEVICE static int empty(int stage) { return full(stage) + 8 * Tiling::stages; }
  LYCEUM_HOST_DEVICE static int order(int group) { return empty(Tiling::stages) + 8 * group; }

  /// `loaders`: threads that arrive at a full barrier.
  template <class Machine>
  LYCEUM_DEVICE static void initialise(const Machine& m, int loaders) {
    for (int stage = 0; stage < Tiling::stages; ++stage) {
      m.begin_barrier(full(stage), loaders);
      m.begin_barrier(empty(stage), Tiling::arrivals);
    }
    for (int group = 0; group < 2; ++group) m.begin_barrier(order(group), 4);
    m.publish_barriers();
  }
};

/// This block's place in its cluster.
template <class Tile, class Machine>
LYCEUM_DEVICE int place_in_cluster(const Machine& m) {
  return m.block_index() % Tile::cluster;
}

/// Calls f(slot, expert, corner) for every tile of this block. The blocks of a cluster divide its tiles' rows.
template <class Tile, class Machine, class F>
LYCEUM_DEVICE void each_tile_of_block(const Machine& m, const Plan& plan, F&& f) {
  if constexpr (Tile::cluster == 1) return each_tile<Tile>(plan, m.block_index(), m.blocks(), f);
  const std::int32_t down = place_in_cluster<Tile>(m) * Tile::block_m;
  each_tile<Tile>(plan, m.block_index() / Tile::cluster, m.blocks() / Tile::cluster,
                  [&](std::int32_t slot, const Expert& expert, Corner corner) {
                    f(slot, expert, Corner{corner.m + down, corner.n});
                  });
}

/// Brings the rows of a from `begin` on and 64 of k to shared memory.
template <Product product, class Tile, class Machine, class TensorMap>
LYCEUM_DEVICE void load_a(const Machine& m, int to, const TensorMap* map, int barrier, int begin, int k) {
  if constexpr (a_along_k(product)) {
    m.load_box(to, map, barrier, k, begin);
  } else {
    LYCEUM_UNROLL
    for (int i = 0; i < Tile::block_m; i += 64) m.load_box(to + i * 128, map, barrier, begin + i, k);
  }
}

/// The same for the columns of b, of which each block of a cluster brings a part to all; of gates and ups, `ups` rows
/// apart, in turns as TileOf says.
template <Product product, class Tile, class Machine, class TensorMap>
LYCEUM_DEVICE void load_b(const Machine& m, int to, const TensorMap* map, int barrier, int begin, int k,
                          std::int32_t ups) {
  constexpr int lines = Tile::b_lines, count = Tile::b_boxes / Tile::cluster;
  LYCEUM_UNROLL
  for (int i = 0; i < count; ++i) {
    const int box = place_in_cluster<Tile>(m) * count + i, at = to + box * lines * 128;
    if constexpr (b_along_k(product)) {
      const std::int32_t line = Tile::gated ? box % 2 * ups + begin + box / 2 * lines : begin + box * lines;
      m.template load_box_for_all<Tile::cluster>(at, map, barrier, k, line);
    } else {
      m.template load_box_for_all<Tile::cluster>(at, map, barrier, begin + box * 64, k);
    }
  }
}

/// One thread keeps all stages full, across tiles.
template <Product product, class Act, class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void produce(const Machine& m, const Plan& plan, const MapsBySlot<TensorMap>& maps) {
  using At = StageOffsets<Tiling>;
  using Tile = TileOf<product, Act, Tiling>;
  Turn<Tiling::stages> turn;
  std::int32_t acquired = -1;
  each_tile_of_block<Tile>(m, plan, [&](std::int32_t slot, const Expert& expert, Corner corner) {
    if (slot != acquired) {
      m.acquire_map(maps.a + slot);
      m.acquire_map(maps.b + slot);
      acquired = slot;
    }
    const std::int32_t depth = expert.k;
    for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
      m.wait_barrier(At::empty(turn.stage), turn.parity ^ 1);
      const int full = At::full(turn.stage);
      m.arrive_expecting(full, Tiling::stage_bytes);
      load_a<product, Tile>(m, At::a(turn.stage), maps.a + slot, full, corner.m, k);
      load_b<product, Tile>(m, At::b(turn.stage), maps.b + slot, full, corner.n, k, expert.n);
    }
  });
}

/// The same where rows of an operand are picked: all threads of the warpgroup copy those, and one of them loads the
/// other operand, by `maps`.
template <Product product, Pick picked, class Act, class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void produce_picked(const Machine& m, const Plan& plan, const TensorMap* maps) {
  using At = StageOffsets<Tiling>;
  using Tile = TileOf<product, Act, Tiling>;
  constexpr bool of_a = picked == Pick::a, along_k = of_a ? a_along_k(product) : b_along_k(product);
  using Copies = PickedCopies<along_k, of_a ? Tiling::m : Tiling::n>;
  const int thread = m.thread();
  Turn<Tiling::stages> turn;
  std::int32_t acquired = -1;
  each_tile_of_block<Tile>(m, plan, [&](std::int32_t slot, const Expert& expert, Corner corner) {
    if (thread == 0 && slot != acquired) m.acquire_map(maps + slot);
    acquired = slot;
    const std::int32_t depth = expert.k;
    const Lines lines = of_a ? lines_of_a(product, expert) : lines_of_b(product, expert);
    const std::int32_t* const rows = of_a ? expert.a_picked : expert.b_picked;
    const std::int32_t begin = of_a ? corner.m : corner.n;
    const auto stride = static_cast<std::uint32_t>(lines.stride / 8);
    const auto* const x = static_cast<const Chunk*>(lines.data);
    constexpr std::uint32_t none = ~0u;
    std::uint32_t place[Copies::count];  // of rows in memory, in chunks: one register each, not an address
    const auto look_up = [&](std::int32_t first) {
      LYCEUM_UNROLL
      for (int i = 0; i < Copies::count; ++i) {
        const std::int32_t line = first + Copies::line(thread, i);
        const std::int32_t row = line < lines.count ? m.read_only(rows + line) : -1;
        place[i] = row < 0 ? none : static_cast<std::uint32_t>(row) * stride;
      }
    };
    look_up(along_k ? begin : 0);
    for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
      m.wait_barrier(At::empty(turn.stage), turn.parity ^ 1);
      const int full = At::full(turn.stage);
      if (thread == 0) {
        m.arrive_expecting(full, of_a ? Tiling::b_bytes : Tiling::a_bytes);
        if constexpr (of_a) {
          load_b<product, Tile>(m, At::b(turn.stage), maps + slot, full, corner.n, k, expert.n);
        } else {
          load_a<product, Tile>(m, At::a(turn.stage), maps + slot, full, corner.m, k);
        }
      }
      const int to = of_a ? At::a(turn.stage) : At::b(turn.stage);
      LYCEUM_UNROLL
      for (int box = 0; box < Copies::boxes; ++box) {
        const std::int32_t element = (along_k ? k : begin) + Copies::element(thread, box);
        LYCEUM_UNROLL
        for (int i = 0; i < Copies::count; ++i) {
          const bool present = place[i] != none && element < lines.width;
          const Chunk* const from = x + (present ? place[i] + static_cast<std::uint32_t>(element) / 8 : 0u);
          m.copy_16(to + static_cast<int>(Copies::offset(thread, i, box)), from, present);
        }
      }
      m.arrive_after_copies(full);
      if constexpr (!along_k) look_up(k + Tiling::k);  // before the wait for the next stage
    }
  });
  m.wait();
}

/// A warp gives a stage back to who loads into it, of all blocks of the cluster: a lane each.
template <class Tiling, class Machine>
LYCEUM_DEVICE void give_back(const Machine& m, int stage, int lane) {
  if constexpr (Tiling::cluster == 1) {
    m.arrive(StageOffsets<Tiling>::empty(stage));
  } else {
    m.arrive_at(StageOffsets<Tiling>::empty(stage), lane);
  }
}

/// c = the first `width` columns of the product, for the rows of the tile from `row` on. Stages are given back one step
/// late, when the tensor cores have surely read them. Calls seen() when the last stage is there.
template <Product product, Pick picked, class Tiling, int width, class Machine, class Seen>
LYCEUM_DEVICE void multiply(const Machine& m, TileSums<Tiling>& c, Turn<Tiling::stages>& turn, int row,
                            std::int32_t depth, Seen&& seen) {
  using At = StageOffsets<Tiling>;
  const int lane = place_in_group(m) % 32;
  const bool speaks = lane < Tiling::cluster;
  int last = -1;
  for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
    m.wait_barrier(At::full(turn.stage), turn.parity);
    if constexpr (picked != Pick::none) m.publish_copies();  // threads wrote it, not TMA
    m.begin_products(c);
    const std::uint32_t a_stage = m.shared_address(At::a(turn.stage)), b_stage = m.shared_address(At::b(turn.stage));
    LYCEUM_UNROLL
    for (int step = 0; step < Tiling::k / 16; ++step) {
      const std::uint64_t b = WgmmaOperand<b_along_k(product)>::descriptor(b_stage, 0, step);
      LYCEUM_UNROLL
      for (int block = 0; block < Tiling::blocks; ++block) {
        const std::uint64_t a = WgmmaOperand<a_along_k(product)>::descriptor(a_stage, row + 64 * block, step);
        m.template multiply_shared<width, !a_along_k(product), !b_along_k(product)>(c.at[block], a, b, k + step > 0);
      }
    }
    m.end_group();
    m.template wait_products<1>(c);
    if (last >= 0 && speaks) give_back<Tiling>(m, last, lane);
    last = turn.stage;
  }
  seen();
  m.template wait_products<0>(c);
  if (speaks) give_back<Tiling>(m, last, lane);
}

/// Writes the results of a warpgroup's rows of a tile, from row `row` and column `col` of c on.
template <Product product, class Act, class Tiling, class Machine>
LYCEUM_DEVICE void write_results(const Machine& m, const TileSums<Tiling>& c, const Expert& expert, std::int32_t row,
                                 std::int32_t col) {
  using Tile = TileOf<product, Act, Tiling>;
  if constexpr (product == Product::weight_grad) {
    static_assert(Tiling::blocks == 1);
    add_rows<Tiling>(m, c.at[0], expert, row, col);
  } else {
    using Sums = RoundedSums<Tiling>;
    Sums sums(m, c);
    if constexpr (std::is_same_v<Act, NoActivation>) {
      LYCEUM_UNROLL
      for (int i = 0; i < Sums::rows; ++i) write_row<Tile>(m, sums.at[i], expert, PartOfRow::of(m, i, row, col));
    } else {
      LYCEUM_NO_UNROLL  // the code for all rows would not fit into the instruction cache
          for (int i = 0; i < Sums::rows; ++i, sums.next()) {
        const PartOfRow part = PartOfRow::of(m, i, row, col);
        if constexpr (product == Product::forward) {
          write_activated<Act, Tile>(m, sums.at[0], expert, part);
        } else {
          write_activation_gradients<Act, Tile>(m, sums.at[0], expert, part);
        }
      }
    }
  }
}

/// The work of warpgroup `group` of those that multiply. `results`: maps by slot.
template <Product product, Pick picked, class Act, class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void consume(const Machine& m, const Plan& plan, const TensorMap* results, int group) {
  using At = StageOffsets<Tiling>;
  using Tile = TileOf<product, Act, Tiling>;
  Turn<Tiling::stages> turn;
  int tile = 0;  // of this block
  std::int32_t acquired = -1;
  each_tile_of_block<Tile>(m, plan, [&](std::int32_t slot, const Expert& expert, Corner corner) {
    const int index = tile++;
    if (Tiling::ping_pong && index % 2 != group) return turn.skip((expert.k + Tiling::k - 1) / Tiling::k);
    const int begin = Tiling::ping_pong ? 0 : 64 * group;
    const std::int32_t row = corner.m + begin;
    if constexpr (product == Product::weight_grad) {
      prefetch_rows<Tiling>(m, expert, row, corner.n);
    } else if constexpr (product == Product::dgrad && !std::is_same_v<Act, NoActivation>) {
      prefetch_hidden<Act, Tile, 64 * Tiling::blocks>(m, expert, row, corner.n);
    }
    if constexpr (Tiling::ping_pong) m.wait_barrier(At::order(group), order_parity(group, index / 2));
    const auto seen = [&] {
      if (Tiling::ping_pong && place_in_group(m) % 32 == 0) m.arrive(At::order(1 - group));
    };
    TileSums<Tiling> c;
    c.clear();  // registers without a value would be kept for it while the results are written
    if (expert.n - corner.n > Tile::narrow) {
      multiply<product, picked, Tiling, Tiling::n>(m, c, turn, begin, expert.k, seen);
    } else {
      multiply<product, picked, Tiling, Tile::narrow_sums>(m, c, turn, begin, expert.k, seen);
    }
    if constexpr (Tiling::result_bytes > 0) {
      if (unit_of(expert) == 8) {
        if (slot != acquired) m.acquire_map(results + slot);
        acquired = slot;
        const int warp = m.thread() / 32 - 4;  // the loading ones come first
        const StoredRows<TensorMap> to{results + slot, At::results(warp), row + warp % 4 * 16, corner.n};
        return store_rows<Tiling>(m, c, expert, to);
      }
    }
    write_results<product, Act, Tiling>(m, c, expert, row, corner.n);
  });
  if constexpr (Tiling::result_bytes > 0) m.wait_bulk();
}

/// A persistent block: warpgroup 0 loads by TMA, and picked rows by copies; 1 and 2 multiply, and apply `Act` to what
/// they write. k of every expert with tiles is at least 1.
template <Product product, Pick picked, class Act, class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void run_block(const Machine& m, const Plan& plan, const MapsBySlot<TensorMap>& maps) {
  constexpr bool copies = picked != Pick::none, clustered = Tiling::cluster > 1;
  if (m.thread() == 0) StageOffsets<Tiling>::initialise(m, copies ? 1 + 128 : 1);
  clustered ? m.sync_cluster() : m.sync();
  const int group = m.thread() / 128;
  if (group == 0) {
    if constexpr (copies) {
      m.template give_registers<40>();
      produce_picked<product, picked, Act, Tiling>(m, plan, picked == Pick::a ? maps.b : maps.a);
    } else {
      m.template give_registers<24>();
      if (m.thread() == 0) produce<product, Act, Tiling>(m, plan, maps);
    }
  } else {
    m.template take_registers<copies ? 232 : 240>();
    consume<product, picked, Act, Tiling>(m, plan, maps.c, group - 1);
  }
  if (clustered) m.sync_cluster();  // until nobody loads for, or arrives at, a block that has ended
}

}  // namespace lyceum::grouped
