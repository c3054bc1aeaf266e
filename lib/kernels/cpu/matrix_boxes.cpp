#include "kernels/matrix_boxes.h"

#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

namespace {

/// Calls f(box, row, col, count) for the parts of rows that the blocks of all boxes consist of: elements [col, col +
/// count) of row `row`.
template <class Box, class F>
void for_each_row_part(const CpuStream& stream, std::span<const Box> boxes, std::int64_t blocks, const F& f) {
  parallel_for(stream, blocks, elements_per_thread / flat_block, [&](std::int64_t first, std::int64_t last) {
    BlockWalk walk(boxes, first);
    for (std::int64_t at = first; at < last; ++at, walk.next()) {
      const Box& box = walk.tensor();
      std::int64_t begin = walk.block() * flat_block;
      const std::int64_t end = std::min(begin + flat_block, box.rows * box.cols);
      while (begin < end) {
        const std::int64_t row = begin / box.cols, col = begin % box.cols,
                           count = std::min(box.cols - col, end - begin);
        f(box, row, col, count);
        begin += count;
      }
    }
  });
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const PackBoxes<T>& pack) {
  using A = Accumulator<T>;
  for_each_row_part(stream, pack.boxes, pack.blocks,
                    [&](const StoredBox<A>& box, std::int64_t row, std::int64_t col, std::int64_t count) {
                      const A* const x = box.memory + row * box.memory_stride + col;
                      T* const y = pack.buffer.data() + box.first + row * box.stride + col;
#pragma omp simd
                      for (std::int64_t i = 0; i < count; ++i) y[i] = round_to<T>(x[i]);
                    });
}

template <class T>
void run(const CpuStream& stream, const UnpackBoxes<T>& unpack) {
  using A = Accumulator<T>;
  require_length("UnpackBoxes", "verdict", unpack.verdict, 1);
  if (unpack.verdict[0].skip != 0) return;
  for_each_row_part(stream, unpack.boxes, unpack.blocks,
                    [&](const StoredBox<A>& box, std::int64_t row, std::int64_t col, std::int64_t count) {
                      const T* const x = unpack.buffer.data() + box.first + row * box.stride + col;
                      A* const y = box.memory + row * box.memory_stride + col;
                      const A factor = static_cast<A>(box.factor);
#pragma omp simd
                      for (std::int64_t i = 0; i < count; ++i) y[i] = factor * static_cast<A>(x[i]);
                    });
}

template <class T>
void run(const CpuStream& stream, const MoveBoxes<T>& move) {
  for_each_row_part(stream, move.boxes, move.blocks,
                    [&](const MovedBox& box, std::int64_t row, std::int64_t col, std::int64_t count) {
                      std::copy_n(move.x.data() + box.from + row * box.from_stride + col, count,
                                  move.y.data() + box.to + row * box.to_stride + col);
                    });
}

LYCEUM_MATRIX_BOXES_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
