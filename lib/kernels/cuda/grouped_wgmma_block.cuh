#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/grouped_wgmma_layout.h"
#include "kernels/cuda/grouped_wgmma_results.cuh"

// One thread block of the grouped products on Hopper: warpgroup 0 loads, warpgroups 1 and 2 multiply. The machine is a
// HopperMachine, or its emulation on the host in tests. TensorMap is the type of the tensor maps that the machine loads
// boxes with.

namespace lyceum::grouped {

/// Tensor maps of each slot's operands a and b, and of its results c if they are stored through shared memory (else
/// null).
template <class TensorMap>
struct MapsBySlot {
  const TensorMap *a, *b, *c;
};

/// Byte offsets of stages, results and barriers in shared memory. The barriers are:
/// - full(stage): a and b are loaded. Loading threads arrive and TMA counts its bytes; multiplying warps wait.
/// - empty(stage): the stage may be overwritten. Multiplying warps arrive, the loading threads wait.
/// - order(group): ping-pong only: warpgroup `group` may begin to multiply. The other warpgroup arrives.
template <class Tiling>
struct StageOffsets {
  LYCEUM_HOST_DEVICE static int a(int stage) { return stage * Tiling::stage_bytes; }
  LYCEUM_HOST_DEVICE static int b(int stage) { return a(stage) + Tiling::a_bytes; }
  /// The two result boxes of multiplying warp `warp` (0 to 7).
  LYCEUM_HOST_DEVICE static int results(int warp) { return a(Tiling::stages) + 2 * warp * Tiling::result_box; }
  LYCEUM_HOST_DEVICE static int full(int stage) { return a(Tiling::stages) + Tiling::result_bytes + 8 * stage; }
  LYCEUM_HOST_DEVICE static int empty(int stage) { return full(stage) + 8 * Tiling::stages; }
  LYCEUM_HOST_DEVICE static int order(int group) { return empty(Tiling::stages) + 8 * group; }

  /// Initialises the barriers. One thread of the block calls it; then the block, or the cluster, must synchronise
  /// before any thread uses them. `loaders` is the number of threads that arrive at a full barrier.
  template <class Machine>
  LYCEUM_DEVICE static void initialise(const Machine& m, int loaders) {
    for (int stage = 0; stage < Tiling::stages; ++stage) {
      m.initialise_barrier(full(stage), loaders);
      m.initialise_barrier(empty(stage), Tiling::arrivals);
    }
    for (int group = 0; group < 2; ++group) m.initialise_barrier(order(group), 4);
    m.publish_barriers();
  }
};

/// Rank of this block in its cluster.
template <class Tile, class Machine>
LYCEUM_DEVICE int rank_in_cluster(const Machine& m) {
  return m.block_index() % Tile::cluster;
}

/// Calls f(slot, expert, corner) for every tile of this block. A cluster computes one tile at a time, whose rows its
/// blocks divide.
template <class Tile, class Machine, class F>
LYCEUM_DEVICE void each_tile_of_block(const Machine& m, const Plan& plan, F&& f) {
  if constexpr (Tile::cluster == 1) return each_tile<Tile>(plan, m.block_index(), m.blocks(), f);
  const std::int32_t down = rank_in_cluster<Tile>(m) * Tile::block_m;
  each_tile<Tile>(plan, m.block_index() / Tile::cluster, m.blocks() / Tile::cluster,
                  [&](std::int32_t slot, const Expert& expert, Corner corner) {
                    f(slot, expert, Corner{corner.m + down, corner.n});
                  });
}

/// Begins loading rows [begin, begin + block_m) of a times 64 of k to shared memory at `to`.
template <Product product, class Tile, class Machine, class TensorMap>
LYCEUM_DEVICE void load_a(const Machine& m, int to, const TensorMap* map, int barrier, int begin, int k) {
  if constexpr (a_along_k(product)) {
    m.load_box(to, map, barrier, k, begin);
  } else {
    LYCEUM_UNROLL
    for (int i = 0; i < Tile::block_m; i += 64) m.load_box(to + i * 128, map, barrier, begin + i, k);
  }
}

/// Begins loading the tile's columns of b, from `begin` on, times 64 of k. Each block of a cluster loads a part and
/// multicasts it to all. With gates and ups, boxes alternate between both, which are `ups` rows of b apart, see TileOf.
template <Product product, class Tile, class Machine, class TensorMap>
LYCEUM_DEVICE void load_b(const Machine& m, int to, const TensorMap* map, int barrier, int begin, int k,
                          std::int32_t ups) {
  constexpr int lines = Tile::b_lines, count = Tile::b_boxes / Tile::cluster;
  LYCEUM_UNROLL
  for (int i = 0; i < count; ++i) {
    const int box = rank_in_cluster<Tile>(m) * count + i, at = to + box * lines * 128;
    if constexpr (b_along_k(product)) {
      const std::int32_t line = Tile::gated ? box % 2 * ups + begin + box / 2 * lines : begin + box * lines;
      m.template load_box_for_all<Tile::cluster>(at, map, barrier, k, line);
    } else {
      m.template load_box_for_all<Tile::cluster>(at, map, barrier, begin + box / Tile::b_parts * 64,
                                                 k + box % Tile::b_parts * lines);
    }
  }
}

/// The loop of the one loading thread: keeps all stages full, across tiles.
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

/// produce() for picked rows. All 128 threads of the warpgroup copy the picked operand with cp.async; thread 0 also
/// loads the other operand, with tensor maps `maps`.
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
    std::int32_t row[Copies::count];          // the rows that the thread copies next; −1 for zeros
    std::uint32_t row_offset[Copies::count];  // row offsets in chunks: one 32-bit register each instead of an address
    const auto look_up = [&](std::int32_t first) {
      LYCEUM_UNROLL
      for (int i = 0; i < Copies::count; ++i) {
        const std::int32_t line = first + Copies::line(thread, i);
        row[i] = line < lines.count ? m.read_only(rows + line) : -1;
      }
    };
    const auto take_rows = [&] {
      LYCEUM_UNROLL
      for (int i = 0; i < Copies::count; ++i) {
        row_offset[i] = row[i] < 0 ? none : static_cast<std::uint32_t>(row[i]) * stride;
      }
    };
    look_up(along_k ? begin : 0);
    if constexpr (along_k) take_rows();
    for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
      if constexpr (!along_k) {  // one stage ahead, so that the latency overlaps with the copies of this one
        take_rows();
        look_up(k + Tiling::k);
      }
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
          const bool present = row_offset[i] != none && element < lines.width;
          const Chunk* const from = x + (present ? row_offset[i] + static_cast<std::uint32_t>(element) / 8 : 0u);
          m.copy_16(to + static_cast<int>(Copies::offset(thread, i, box)), from, present);
        }
      }
      m.arrive_after_copies(full);
    }
  });
  m.wait();
}

/// Releases a stage for its loaders, by an arrival of this warp at the empty barrier of each block of the cluster.
/// Called by lanes 0 to cluster − 1 of a multiplying warp; lane `lane` arrives in block `lane` of the cluster.
template <class Tiling, class Machine>
LYCEUM_DEVICE void release_stage(const Machine& m, int stage, int lane) {
  if constexpr (Tiling::cluster == 1) {
    m.arrive(StageOffsets<Tiling>::empty(stage));
  } else {
    m.arrive_at(StageOffsets<Tiling>::empty(stage), lane);
  }
}

/// Computes the first `width` columns of the product for a warpgroup's rows, from `row` of the tile on, over `depth`
/// indices of k. A stage is released one step late, when its products are known to be complete. Calls seen() when the
/// last stage has arrived, before its products are complete.
template <Product product, Pick picked, class Tiling, int width, class Machine, class Seen>
LYCEUM_DEVICE void multiply(const Machine& m, TileSums<Tiling>& c, Turn<Tiling::stages>& turn, int row,
                            std::int32_t depth, Seen&& seen) {
  using At = StageOffsets<Tiling>;
  const int lane = thread_in_group(m) % 32;
  const bool arrives = lane < Tiling::cluster;  // lanes that arrive at the empty barriers
  int last = -1;
  for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
    m.wait_barrier(At::full(turn.stage), turn.parity);
    if constexpr (picked != Pick::none) m.publish_copies();  // the threads copied it, not TMA
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
    if (last >= 0 && arrives) release_stage<Tiling>(m, last, lane);
    last = turn.stage;
  }
  seen();
  m.template wait_products<0>(c);
  if (last >= 0 && arrives) release_stage<Tiling>(m, last, lane);
}

/// Writes the results of a warpgroup's rows of a tile. Its first row and column in c are `row` and `col`.
template <Product product, class Act, class Tiling, class Machine>
LYCEUM_DEVICE void write_results(const Machine& m, const TileSums<Tiling>& c, const Expert& expert, std::int32_t row,
                                 std::int32_t col) {
  using Tile = TileOf<product, Act, Tiling>;
  if constexpr (product == Product::weight_grad) {
    add_tile<Tiling>(m, c, expert, row, col);
  } else {
    using Sums = RoundedSums<Tiling>;
    Sums sums(m, c);
    if constexpr (std::is_same_v<Act, NoActivation>) {
      LYCEUM_UNROLL
      for (int i = 0; i < Sums::rows; ++i) write_row<Tile>(m, sums.at[i], expert, PartOfRow::of(m, i, row, col));
    } else {
      LYCEUM_NO_UNROLL  // the unrolled code for all rows would not fit into the instruction cache
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

/// The loop of multiplying warpgroup `group` (0 or 1). `results`: tensor maps of c by slot.
template <Product product, Pick picked, class Act, class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void consume(const Machine& m, const Plan& plan, const TensorMap* results, int group) {
  using At = StageOffsets<Tiling>;
  using Tile = TileOf<product, Act, Tiling>;
  Turn<Tiling::stages> turn;
  int tile = 0;  // count of this block's tiles
  std::int32_t acquired = -1;
  each_tile_of_block<Tile>(m, plan, [&](std::int32_t slot, const Expert& expert, Corner corner) {
    const int index = tile++;
    if (Tiling::ping_pong && index % 2 != group) return turn.skip((expert.k + Tiling::k - 1) / Tiling::k);
    const int begin = Tiling::ping_pong ? 0 : 64 * group;
    const std::int32_t row = corner.m + begin;
    if constexpr (product == Product::weight_grad) {
      if (expert.accumulate) prefetch_rows<Tiling>(m, expert, row, corner.n);
    } else if constexpr (product == Product::dgrad && !std::is_same_v<Act, NoActivation>) {
      prefetch_hidden<Act, Tile, 64 * Tiling::blocks>(m, expert, row, corner.n);
    }
    if constexpr (Tiling::ping_pong) m.wait_barrier(At::order(group), order_parity(group, index / 2));
    const auto seen = [&] {
      if (Tiling::ping_pong && thread_in_group(m) % 32 == 0) m.arrive(At::order(1 - group));
    };
    TileSums<Tiling> c;
    c.clear();  // else the compiler keeps registers reserved for c while results are written
    if (expert.n - corner.n > Tile::narrow) {
      multiply<product, picked, Tiling, Tiling::n>(m, c, turn, begin, expert.k, seen);
    } else {
      multiply<product, picked, Tiling, Tile::narrow_sums>(m, c, turn, begin, expert.k, seen);
    }
    if constexpr (Tiling::result_bytes > 0) {
      if (unit_of(expert) == 8) {
        if (slot != acquired) m.acquire_map(results + slot);
        acquired = slot;
        const int warp = m.thread() / 32 - 4;  // the four loading warps come first
        const StoredRows<TensorMap> to{results + slot, At::results(warp), row + warp % 4 * 16, corner.n};
        return store_rows<Tiling>(m, c, expert, to);
      }
    }
    write_results<product, Act, Tiling>(m, c, expert, row, corner.n);
  });
  if constexpr (Tiling::result_bytes > 0) m.wait_bulk();
}

/// The code of a persistent block. Warpgroup 0 loads with TMA, and picked rows with cp.async. Warpgroups 1 and 2
/// multiply, and apply `Act` to the results. If k is 0, the sums are zero.
template <Product product, Pick picked, class Act, class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void run_block(const Machine& m, const Plan& plan, const MapsBySlot<TensorMap>& maps) {
  constexpr bool copies = picked != Pick::none, clustered = Tiling::cluster > 1;
  constexpr int loading_registers = copies || clustered ? 40 : 24, registers = copies || clustered ? 232 : 240;
  if (m.thread() == 0) StageOffsets<Tiling>::initialise(m, copies ? 1 + 128 : 1);
  clustered ? m.sync_cluster() : m.sync();
  const int group = m.thread() / 128;
  if (group == 0) {
    if constexpr (copies) {
      m.template decrease_registers<loading_registers>();
      produce_picked<product, picked, Act, Tiling>(m, plan, picked == Pick::a ? maps.b : maps.a);
    } else {
      m.template decrease_registers<loading_registers>();
      if (m.thread() == 0) produce<product, Act, Tiling>(m, plan, maps);
    }
  } else {
    m.template increase_registers<registers>();
    consume<product, picked, Act, Tiling>(m, plan, maps.c, group - 1);
  }
  // A block must not end while others may still load into its memory or arrive at its barriers.
  if (clustered) m.sync_cluster();
}

}  // namespace lyceum::grouped
