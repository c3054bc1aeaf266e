#pragma once

#include <cstdint>

#include "kernels/cuda/grouped_mma_layout.h"
#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/host_device.h"

namespace lyceum::grouped {

/// The registers of one thread of MmaTile.
struct MmaThread {
  int index = 0;           // in the block
  float c[4][4][4] = {};   // [16 rows][8 columns][this lane's elements]
  std::uint32_t a[4][4];   // [16 rows of c][this lane's words], for 16 indices of k
  std::uint32_t b[2][4];   // [16 columns of c][this lane's words], for 16 indices of k
  Chunk fetched[2];        // chunks of one operand that are loaded through registers, if rows are not aligned
  std::int32_t picked[2];  // row indices of the chunks that the next load() copies, if rows are picked
};

/// One operand of a tile in global memory: elements [begin, extent) along m or n times [0, k). `Picked`: its rows are
/// picked from a matrix by index.
template <bool AlongK, bool Picked>
struct MmaSource {
  const std::uint16_t* data;
  std::int64_t stride;
  std::int32_t begin, extent;  // along m or n
  std::int32_t k;
  bool aligned;  // every row begins at a multiple of 16 bytes
  const std::int32_t* picked;

  MmaSource() = default;
  LYCEUM_DEVICE MmaSource(const void* operand, std::int64_t stride, std::int32_t begin, std::int32_t extent,
                          std::int32_t k, const std::int32_t* picked)
      : data(static_cast<const std::uint16_t*>(operand)),
        stride(stride),
        begin(begin),
        extent(extent),
        k(k),
        aligned(stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(operand) % 16 == 0),
        picked(picked) {}

  /// Returns the matrix row that a line of the tile of step `step` is picked from; −1 for a line of zeros.
  LYCEUM_DEVICE std::int32_t row(int step, int line) const {
    const std::int32_t outer = AlongK ? begin + line : step * MmaTiling::k + line;
    return outer < (AlongK ? extent : k) ? picked[outer] : -1;
  }

  /// A chunk of the tile of step `step`: its address and the number of elements inside the operand, 0 to 8. `row` is
  /// the row that the line is picked from; it is ignored unless `Picked`.
  struct SourceChunk {
    const std::uint16_t* from;
    int count;
  };
  LYCEUM_DEVICE SourceChunk source_chunk(int step, int line, int chunk, std::int32_t row) const {
    const std::int32_t outer = Picked ? row : AlongK ? begin + line : step * MmaTiling::k + line;
    const std::int32_t inner = (AlongK ? step * MmaTiling::k : begin) + chunk * 8;
    const std::int32_t left = (AlongK ? k : extent) - inner;
    if ((Picked ? row < 0 : outer >= (AlongK ? extent : k)) || left <= 0) return {data, 0};
    return {data + outer * stride + inner, left < 8 ? left : 8};
  }
};

/// Computes one tile of a grouped product with mma.sync. All threads of a block take the steps together. `picked` is
/// the operand whose rows are picked. Machine is the block: Block on a GPU, an emulation on the host in tests. It has
/// - each(f): calls f(MmaThread&) for every thread;
/// - copy(offset, from, count): begins an asynchronous copy of a chunk to shared memory;
/// - commit() and wait<n>(): groups of copies as in cp.async;
/// - sync(): the block's barrier;
/// - fetch(from, count) and store(offset, Chunk): load a chunk from global memory, store one to shared memory;
/// - ldmatrix<transposed>(offset of lane, lane, registers);
/// - multiply(): c += a · b for every thread;
/// - bf16(float): rounds to nearest even.
template <Product product, Pick picked, class Machine>
class MmaTile {
  static constexpr bool a_k = a_along_k(product), b_k = b_along_k(product);
  static constexpr bool a_picked = picked == Pick::a, b_picked = picked == Pick::b;
  using Tiling = MmaTiling;

 public:
  LYCEUM_DEVICE MmaTile(Machine& machine, const Expert& expert, Corner corner)
      : machine_(machine),
        expert_(expert),
        corner_(corner),
        a_(expert.a, expert.a_stride, corner.m, expert.filled, expert.k, expert.a_picked),
        b_(expert.b, expert.b_stride, corner.n, expert.n, expert.k, expert.b_picked) {}

  /// Computes and writes the tile. Afterwards the block may compute another tile in the same shared memory.
  LYCEUM_DEVICE void run() {
    const int steps = (expert_.k + Tiling::k - 1) / Tiling::k;
    machine_.each([](MmaThread& t) {
      LYCEUM_UNROLL
      for (int i = 0; i < 64; ++i) t.c[i / 16][i / 4 % 4][i % 4] = 0;
    });
    if constexpr (a_picked) machine_.each([&](MmaThread& t) { look_up(a_, t, 0); });
    if constexpr (b_picked) machine_.each([&](MmaThread& t) { look_up(b_, t, 0); });
    for (int step = 0; step < Tiling::stages - 1; ++step) {
      load(a_, step, steps, a_at(step), [] {});
      load(b_, step, steps, b_at(step), [] {});
      machine_.commit();
    }
    for (int step = 0; step < steps; ++step) {
      machine_.template wait<Tiling::stages - 2>();
      machine_.sync();
      // Step `next` overwrites the stage that the step before this one used; all warps have finished that step.
      const int next = step + Tiling::stages - 1;
      load(a_, next, steps, a_at(next), [&] { multiply(step, 0); });
      load(b_, next, steps, b_at(next), [&] { multiply(step, 16); });
      machine_.commit();
    }
    machine_.template wait<0>();
    machine_.sync();  // the next tile overwrites the stages
    machine_.each([&](MmaThread& t) { write(t); });
  }

 private:
  /// Shared-memory offsets of the operands of a step. Steps use the `stages` stages in turns.
  LYCEUM_DEVICE static int a_at(int step) { return step % Tiling::stages * 2 * Tiling::operand_bytes; }
  LYCEUM_DEVICE static int b_at(int step) { return a_at(step) + Tiling::operand_bytes; }

  /// Copies one operand of a step to shared memory at `base`; does nothing if step >= steps. The copy is asynchronous
  /// if rows are aligned. Otherwise it goes through registers, and meanwhile() runs between load and store.
  template <bool AlongK, bool Picked, class Meanwhile>
  LYCEUM_DEVICE void load(const MmaSource<AlongK, Picked>& source, int step, int steps, int base,
                          Meanwhile&& meanwhile) {
    if (step < steps) machine_.each([&](MmaThread& t) { fetch(source, t, step, base); });
    meanwhile();
    if (step < steps && !source.aligned) machine_.each([&](MmaThread& t) { put<AlongK>(t.index, base, t.fetched); });
  }

  /// Begins a thread's two copies of an operand, or loads them to registers if rows are not aligned.
  template <bool AlongK, bool Picked>
  LYCEUM_DEVICE void fetch(const MmaSource<AlongK, Picked>& source, MmaThread& t, int step, int base) {
    LYCEUM_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int index = t.index + i * Tiling::threads;
      const int line = index / MmaOperand<AlongK>::chunks, chunk = index % MmaOperand<AlongK>::chunks;
      const auto global = source.source_chunk(step, line, chunk, Picked ? t.picked[i] : 0);
      if (source.aligned) {
        machine_.copy(base + MmaOperand<AlongK>::offset(line, chunk), global.from, global.count);
      } else {
        t.fetched[i] = machine_.fetch(global.from, global.count);
      }
    }
    // One step ahead, so that the next copy does not wait for the index.
    if constexpr (Picked && !AlongK) look_up(source, t, step + 1);
  }
  /// Looks up the row indices of the chunks that a thread copies in step `step`. If the operand is stored along k, they
  /// are the same in all steps.
  template <bool AlongK>
  LYCEUM_DEVICE void look_up(const MmaSource<AlongK, true>& source, MmaThread& t, int step) {
    LYCEUM_UNROLL
    for (int i = 0; i < 2; ++i) {
      t.picked[i] = source.row(step, (t.index + i * Tiling::threads) / MmaOperand<AlongK>::chunks);
    }
  }
  /// Stores the chunks that fetch() loaded to registers.
  template <bool AlongK>
  LYCEUM_DEVICE void put(int thread, int base, const Chunk (&fetched)[2]) {
    LYCEUM_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int index = thread + i * Tiling::threads;
      const int line = index / MmaOperand<AlongK>::chunks, chunk = index % MmaOperand<AlongK>::chunks;
      machine_.store(base + MmaOperand<AlongK>::offset(line, chunk), fetched[i]);
    }
  }

  /// Adds to c the product over 16 of the 32 indices of k of a step, from index `k` on.
  LYCEUM_DEVICE void multiply(int step, int k) {
    machine_.each([&](MmaThread& t) {
      const int lane = t.index % 32, row = row_of(t), col = col_of(t);
      LYCEUM_UNROLL
      for (int i = 0; i < 4; ++i) {
        machine_.template ldmatrix<!a_k>([&](int l) { return a_at(step) + a_fragment<a_k>(l, row + 16 * i, k); }, lane,
                                         t.a[i]);
      }
      LYCEUM_UNROLL
      for (int j = 0; j < 2; ++j) {
        machine_.template ldmatrix<!b_k>([&](int l) { return b_at(step) + b_fragment<b_k>(l, col + 16 * j, k); }, lane,
                                         t.b[j]);
      }
    });
    machine_.multiply();
  }

  /// First row and column of a thread's warp in the tile.
  LYCEUM_DEVICE static int row_of(const MmaThread& t) { return t.index / 32 / Tiling::warps_n * Tiling::warp_m; }
  LYCEUM_DEVICE static int col_of(const MmaThread& t) { return t.index / 32 % Tiling::warps_n * Tiling::warp_n; }

  /// Writes a thread's elements of c. A weight gradient is f32, and with `accumulate` the elements are added to it.
  /// Other results are rounded to bf16, and rows from `filled` on are set to zero.
  LYCEUM_DEVICE void write(const MmaThread& t) {
    const int lane = t.index % 32;
    const std::uintptr_t pair = product == Product::weight_grad ? 8 : 4;  // bytes
    const bool pairs = expert_.c_stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(expert_.c) % pair == 0;
    const bool adds = expert_.accumulate;  // read here, since the compiler would read it again after each store
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {
      LYCEUM_UNROLL
      for (int j = 0; j < 4; ++j) {
        LYCEUM_UNROLL
        for (int half = 0; half < 2; ++half) {
          const cuda::MatrixPosition at = cuda::MmaLayout::c(lane, 2 * half);
          const std::int32_t row = corner_.m + row_of(t) + 16 * i + at.row;
          const std::int32_t col = corner_.n + col_of(t) + 8 * j + at.col;
          const float* const value = t.c[i][j] + 2 * half;
          if (row >= expert_.m || col >= expert_.n) continue;
          if constexpr (product == Product::weight_grad) {
            add_pair(row * expert_.c_stride + col, value, col + 1 < expert_.n, pairs, adds);
          } else {
            write_pair(row * expert_.c_stride + col, value, col + 1 < expert_.n, pairs, row < expert_.filled);
          }
        }
      }
    }
  }

  /// add_pair() adds to (if not `adds`, to zeros), and write_pair() writes, the element of c at offset `at` and, if
  /// `two`, the next one. `pairs`: all pairs of elements are aligned, so both are accessed at once. write_pair() writes
  /// zeros if not `filled`.
  LYCEUM_DEVICE void add_pair(std::int64_t at, const float* value, bool two, bool pairs, bool adds) {
    struct alignas(8) Pair {
      float first = 0, second = 0;
    };
    float* const c = static_cast<float*>(expert_.c) + at;
    if (pairs && two) {
      Pair& sum = *reinterpret_cast<Pair*>(c);
      const Pair old = adds ? sum : Pair{};
      sum = {old.first + value[0], old.second + value[1]};
    } else {
      c[0] = (adds ? c[0] : 0.0f) + value[0];
      if (two) c[1] = (adds ? c[1] : 0.0f) + value[1];
    }
  }
  LYCEUM_DEVICE void write_pair(std::int64_t at, const float* value, bool two, bool pairs, bool filled) {
    std::uint16_t* const c = static_cast<std::uint16_t*>(expert_.c) + at;
    const std::uint16_t first = filled ? machine_.bf16(value[0]) : std::uint16_t{0};
    const std::uint16_t second = filled ? machine_.bf16(value[1]) : std::uint16_t{0};
    if (pairs && two) {
      *reinterpret_cast<std::uint32_t*>(c) = first | static_cast<std::uint32_t>(second) << 16;
    } else {
      c[0] = first;
      if (two) c[1] = second;
    }
  }

  Machine& machine_;
  const Expert& expert_;
  Corner corner_;
  MmaSource<a_k, a_picked> a_;
  MmaSource<b_k, b_picked> b_;
};

}  // namespace lyceum::grouped
