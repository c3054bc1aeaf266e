#pragma once

#include <cstdint>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/grouped_wgmma_layout.h"
#include "kernels/cuda/warp_tiles.cuh"

// A block of grouped products on Hopper: one warpgroup loads, two multiply. The machine is a HopperMachine, or in tests
// its emulation on the host; a TensorMap is what that machine loads boxes by.

namespace lyceum::grouped {

/// Where stages and barriers lie in shared memory.
template <class Tiling>
struct StageOffsets {
  LYCEUM_HOST_DEVICE static int a(int stage) { return stage * Tiling::stage_bytes; }
  LYCEUM_HOST_DEVICE static int b(int stage) { return a(stage) + Tiling::a_bytes; }
  LYCEUM_HOST_DEVICE static int full(int stage) { return Tiling::stages * Tiling::stage_bytes + 8 * stage; }
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

/// Brings `extent` rows or columns, from `begin` on, and 64 of k to shared memory.
template <bool along_k, int extent, class Machine, class TensorMap>
LYCEUM_DEVICE void load(const Machine& m, int to, const TensorMap* map, int barrier, int begin, int k) {
  if constexpr (along_k) {
    m.load_box(to, map, barrier, k, begin);
  } else {
    LYCEUM_UNROLL
    for (int i = 0; i < extent; i += 64) m.load_box(to + i * 128, map, barrier, begin + i, k);
  }
}

/// One thread keeps all stages full, across tiles.
template <Product product, class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void produce(const Machine& m, const Plan& plan, const TensorMap* a_maps, const TensorMap* b_maps) {
  using At = StageOffsets<Tiling>;
  Turn<Tiling::stages> turn;
  std::int32_t acquired = -1;
  each_tile<Tiling>(plan, m.block_index(), m.blocks(), [&](std::int32_t slot, const Expert& expert, Corner corner) {
    if (slot != acquired) {
      m.acquire_map(a_maps + slot);
      m.acquire_map(b_maps + slot);
      acquired = slot;
    }
    const std::int32_t depth = expert.k;
    for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
      m.wait_barrier(At::empty(turn.stage), turn.parity ^ 1);
      const int full = At::full(turn.stage);
      m.arrive_expecting(full, Tiling::stage_bytes);
      load<a_along_k(product), Tiling::m>(m, At::a(turn.stage), a_maps + slot, full, corner.m, k);
      load<b_along_k(product), Tiling::n>(m, At::b(turn.stage), b_maps + slot, full, corner.n, k);
    }
  });
}

/// The same where rows of x are picked: all threads of the warpgroup copy those, and one of them loads the other
/// operand, by `maps`.
template <Product product, class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void produce_picked(const Machine& m, const Plan& plan, const TensorMap* maps) {
  using At = StageOffsets<Tiling>;
  constexpr bool of_a = product == Product::forward;
  using Copies = PickedCopies<of_a, of_a ? Tiling::m : Tiling::n>;
  const int thread = m.thread();
  Turn<Tiling::stages> turn;
  std::int32_t acquired = -1;
  each_tile<Tiling>(plan, m.block_index(), m.blocks(), [&](std::int32_t slot, const Expert& expert, Corner corner) {
    if (thread == 0 && slot != acquired) m.acquire_map(maps + slot);
    acquired = slot;
    const std::int32_t depth = expert.k;
    const std::int32_t width = of_a ? depth : expert.n, lines = of_a ? expert.filled : depth;
    const auto stride = static_cast<std::uint32_t>((of_a ? expert.a_stride : expert.b_stride) / 8);
    const auto* const x = static_cast<const Chunk*>(of_a ? expert.a : expert.b);
    constexpr std::uint32_t none = ~0u;
    std::uint32_t place[Copies::count];  // of rows in x, in chunks: one register each, not an address
    const auto look_up = [&](std::int32_t first) {
      LYCEUM_UNROLL
      for (int i = 0; i < Copies::count; ++i) {
        const std::int32_t line = first + Copies::line(thread, i);
        const std::int32_t row = line < lines ? m.read_only(expert.picked + line) : -1;
        place[i] = row < 0 ? none : static_cast<std::uint32_t>(row) * stride;
      }
    };
    look_up(of_a ? corner.m : 0);
    for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
      m.wait_barrier(At::empty(turn.stage), turn.parity ^ 1);
      const int full = At::full(turn.stage);
      if (thread == 0) {
        m.arrive_expecting(full, of_a ? Tiling::b_bytes : Tiling::a_bytes);
        if constexpr (of_a) {
          load<b_along_k(product), Tiling::n>(m, At::b(turn.stage), maps + slot, full, corner.n, k);
        } else {
          load<a_along_k(product), Tiling::m>(m, At::a(turn.stage), maps + slot, full, corner.m, k);
        }
      }
      const int to = of_a ? At::a(turn.stage) : At::b(turn.stage);
      LYCEUM_UNROLL
      for (int box = 0; box < Copies::boxes; ++box) {
        const std::int32_t element = (of_a ? k : corner.n) + Copies::element(thread, box);
        LYCEUM_UNROLL
        for (int i = 0; i < Copies::count; ++i) {
          const bool present = place[i] != none && element < width;
          const Chunk* const from = x + (present ? place[i] + static_cast<std::uint32_t>(element) / 8 : 0u);
          m.copy_16(to + static_cast<int>(Copies::offset(thread, i, box)), from, present);
        }
      }
      m.arrive_after_copies(full);
      if constexpr (!of_a) look_up(k + Tiling::k);  // before the wait for the next stage
    }
  });
  m.wait();
}

/// This thread's place in its warpgroup; without signs, which would cost instructions.
template <class Machine>
LYCEUM_DEVICE int place_in_group(const Machine& m) {
  return static_cast<int>(static_cast<unsigned>(m.thread()) % 128u);
}

/// Sums of the rows of a tile that a warpgroup computes.
template <class Tiling>
using TileSums = cuda::Accumulators<Tiling::blocks, Tiling::n>;

/// c = the first `width` columns of the product, for the rows of the tile from `row` on. Stages are given back one step
/// late, when the tensor cores have surely read them. Calls seen() when the last stage is there.
template <Product product, bool picked, class Tiling, int width, class Machine, class Seen>
LYCEUM_DEVICE void multiply(const Machine& m, TileSums<Tiling>& c, Turn<Tiling::stages>& turn, int row,
                            std::int32_t depth, Seen&& seen) {
  using At = StageOffsets<Tiling>;
  const bool speaks = place_in_group(m) % 32 == 0;
  int last = -1;
  for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
    m.wait_barrier(At::full(turn.stage), turn.parity);
    if constexpr (picked) m.publish_copies();  // threads wrote it, not TMA
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
    if (last >= 0 && speaks) m.arrive(At::empty(last));
    last = turn.stage;
  }
  seen();
  m.template wait_products<0>(c);
  if (speaks) m.arrive(At::empty(last));
}

/// Writes eight elements of a row, as far as there are so many, in units of as many elements as are aligned.
template <class Machine>
LYCEUM_DEVICE void write_eight(const Machine& m, std::uint16_t* to, const Chunk& chunk, int left, int unit) {
  if (unit == 8 && left >= 8) return m.write(to, chunk);
  LYCEUM_UNROLL
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = chunk.word[i];
    if (unit > 1 && 2 * i + 1 < left) {
      m.write(to + 2 * i, word);
    } else {
      if (2 * i < left) m.write(to + 2 * i, static_cast<std::uint16_t>(word));
      if (2 * i + 1 < left) m.write(to + 2 * i + 1, static_cast<std::uint16_t>(word >> 16));
    }
  }
}

/// Elements that may be written at once in any row: 8, 2 or 1.
LYCEUM_DEVICE int unit_of(const Expert& expert) {
  const auto address = reinterpret_cast<std::uintptr_t>(expert.c);
  if (expert.c_stride % 8 == 0 && address % 16 == 0) return 8;
  return expert.c_stride % 2 == 0 && address % 4 == 0 ? 2 : 1;
}

/// y of 64 rows of a tile: four lanes together put 64 neighbouring bytes of a row in order, and write 16 each.
template <class Tiling, class Machine>
LYCEUM_DEVICE void write_rows(const Machine& m, const float (&c)[Tiling::n / 8][4], const Expert& expert,
                              std::int32_t row0, std::int32_t col0) {
  const int thread = place_in_group(m), lane = thread % 4;
  const QuadTranspose quad(lane);
  const int unit = unit_of(expert);
  LYCEUM_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::int32_t row = row0 + wgmma_row(thread, 2 * half);
    const bool filled = row < expert.filled;
    std::uint16_t* const y = static_cast<std::uint16_t*>(expert.c) + row * expert.c_stride;
    LYCEUM_UNROLL
    for (int block = 0; block < Tiling::n / 8; block += 4) {
      Chunk chunk;
      std::uint32_t give[2];
      LYCEUM_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* const pair = c[block + i] + 2 * half;
        chunk.word[i] = filled ? m.pack(pair[0], pair[1]) : 0u;
      }
      quad.give_far(chunk.word, give);
      const std::uint32_t far[2] = {m.from_lane_xor(give[0], 2), m.from_lane_xor(give[1], 2)};
      quad.take_far(chunk.word, far);
      quad.give_near(chunk.word, give);
      const std::uint32_t near[2] = {m.from_lane_xor(give[0], 1), m.from_lane_xor(give[1], 1)};
      quad.take_near(chunk.word, near);
      const std::int32_t col = col0 + (block + lane) * 8;
      if (row < expert.m) write_eight(m, y + col, chunk, expert.n - col, unit);
    }
  }
}

/// Two neighbours of a row of dw.
struct alignas(8) FloatPair {
  float first = 0, second = 0;
};

/// dw of 64 rows of a tile: adds in groups, so that many loads are under way at once.
template <class Tiling, class Machine>
LYCEUM_DEVICE void add_rows(const Machine& m, const float (&c)[Tiling::n / 8][4], const Expert& expert,
                            std::int32_t row0, std::int32_t col0) {
  constexpr int group = 8;
  const int thread = place_in_group(m);
  const bool pairs = expert.c_stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(expert.c) % 8 == 0;
  LYCEUM_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::int32_t row = row0 + wgmma_row(thread, 2 * half);
    float* const dw = static_cast<float*>(expert.c) + row * expert.c_stride;
    const std::int32_t end = row < expert.m ? expert.n : 0;
    LYCEUM_UNROLL
    for (int block = 0; block < Tiling::n / 8; block += group) {
      FloatPair old[group];
      LYCEUM_UNROLL
      for (int i = 0; i < group; ++i) {
        const std::int32_t col = col0 + wgmma_col(thread, 4 * (block + i));
        if (pairs && col + 1 < end) {
          old[i] = m.template read<FloatPair>(dw + col);
        } else {
          old[i] = {col < end ? dw[col] : 0.0f, col + 1 < end ? dw[col + 1] : 0.0f};
        }
      }
      LYCEUM_UNROLL
      for (int i = 0; i < group; ++i) {
        const std::int32_t col = col0 + wgmma_col(thread, 4 * (block + i));
        const float* const pair = c[block + i] + 2 * half;
        const FloatPair sum{old[i].first + pair[0], old[i].second + pair[1]};
        if (pairs && col + 1 < end) {
          m.write(dw + col, sum);
        } else {
          if (col < end) dw[col] = sum.first;
          if (col + 1 < end) dw[col + 1] = sum.second;
        }
      }
    }
  }
}

/// Asks for the gradients that add_rows() will read, while the tensor cores are busy.
template <class Tiling, class Machine>
LYCEUM_DEVICE void prefetch_rows(const Machine& m, const Expert& expert, std::int32_t row0, std::int32_t col0) {
  const int thread = place_in_group(m);
  const std::int32_t row = row0 + thread / 2;
  if (row >= expert.m) return;
  const float* const dw = static_cast<const float*>(expert.c) + row * expert.c_stride;
  LYCEUM_UNROLL
  for (int i = 0; i < Tiling::n; i += 64) {
    const std::int32_t col = col0 + i + thread % 2 * 32;
    if (col < expert.n) m.prefetch(dw + col);
  }
}

/// The work of warpgroup `group` of those that multiply.
template <Product product, bool picked, class Tiling, class Machine>
LYCEUM_DEVICE void consume(const Machine& m, const Plan& plan, int group) {
  using At = StageOffsets<Tiling>;
  Turn<Tiling::stages> turn;
  int tile = 0;  // of this block
  each_tile<Tiling>(plan, m.block_index(), m.blocks(), [&](std::int32_t, const Expert& expert, Corner corner) {
    const int index = tile++;
    if (Tiling::ping_pong && index % 2 != group) return turn.skip((expert.k + Tiling::k - 1) / Tiling::k);
    const int begin = Tiling::ping_pong ? 0 : 64 * group;
    const std::int32_t row = corner.m + begin;
    if constexpr (product == Product::weight_grad) prefetch_rows<Tiling>(m, expert, row, corner.n);
    if constexpr (Tiling::ping_pong) m.wait_barrier(At::order(group), order_parity(group, index / 2));
    const auto seen = [&] {
      if (Tiling::ping_pong && place_in_group(m) % 32 == 0) m.arrive(At::order(1 - group));
    };
    constexpr int narrow = Tiling::narrow(b_along_k(product));
    TileSums<Tiling> c;
    if (expert.n - corner.n > narrow) {
      multiply<product, picked, Tiling, Tiling::n>(m, c, turn, begin, expert.k, seen);
    } else {
      multiply<product, picked, Tiling, narrow>(m, c, turn, begin, expert.k, seen);
    }
    if constexpr (product == Product::weight_grad) {
      static_assert(Tiling::blocks == 1);
      add_rows<Tiling>(m, c.at[0], expert, row, corner.n);
    } else {
      LYCEUM_UNROLL
      for (int block = 0; block < Tiling::blocks; ++block) {
        write_rows<Tiling>(m, c.at[block], expert, row + 64 * block, corner.n);
      }
    }
  });
}

/// A persistent block: warpgroup 0 loads by TMA, and picked rows by copies; 1 and 2 multiply. k of every expert with
/// tiles is at least 1. Maps are those of each slot's operands.
template <Product product, bool picked, class Tiling, class Machine, class TensorMap>
LYCEUM_DEVICE void run_block(const Machine& m, const Plan& plan, const TensorMap* a_maps, const TensorMap* b_maps) {
  if (m.thread() == 0) StageOffsets<Tiling>::initialise(m, picked ? 1 + 128 : 1);
  m.sync();
  const int group = m.thread() / 128;
  if (group == 0) {
    if constexpr (picked) {
      m.template give_registers<40>();
      produce_picked<product, Tiling>(m, plan, product == Product::forward ? b_maps : a_maps);
    } else {
      m.template give_registers<24>();
      if (m.thread() == 0) produce<product, Tiling>(m, plan, a_maps, b_maps);
    }
  } else {
    m.template take_registers<picked ? 232 : 240>();
    consume<product, picked, Tiling>(m, plan, group - 1);
  }
}

}  // namespace lyceum::grouped
