#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/matrix_boxes.h"

namespace lyceum {

namespace {

constexpr int box_threads = 256;

/// Calls f(box, row, col) for every element of all boxes. A thread block processes whole blocks of flat_block elements,
/// and its neighbouring threads neighbouring elements.
template <class Box, class F>
__device__ void for_each_element(std::span<const Box> boxes, std::int64_t blocks, const F& f) {
  const std::int64_t first = blocks * blockIdx.x / gridDim.x, last = blocks * (blockIdx.x + 1) / gridDim.x;
  if (first == last) return;
  BlockWalk<Box> walk(boxes, first);
  for (std::int64_t at = first; at < last; ++at, walk.next()) {
    const Box& box = walk.tensor();
    const std::int64_t begin = walk.block() * flat_block, rest = box.rows * box.cols - begin;
    const std::int64_t end = begin + (rest < flat_block ? rest : flat_block);
    for (std::int64_t i = begin + threadIdx.x; i < end; i += box_threads) f(box, i / box.cols, i % box.cols);
  }
}

template <class T>
__global__ void __launch_bounds__(box_threads) pack_boxes(PackBoxes<T> pack) {
  using A = Accumulator<T>;
  for_each_element(pack.boxes, pack.blocks, [&](const StoredBox<A>& box, std::int64_t row, std::int64_t col) {
    pack.buffer[box.first + row * box.stride + col] = narrow<T>(box.memory[row * box.memory_stride + col]);
  });
}

template <class T>
__global__ void __launch_bounds__(box_threads) unpack_boxes(UnpackBoxes<T> unpack) {
  using A = Accumulator<T>;
  if (unpack.verdict[0].skip != 0) return;
  for_each_element(unpack.boxes, unpack.blocks, [&](const StoredBox<A>& box, std::int64_t row, std::int64_t col) {
    box.memory[row * box.memory_stride + col] =
        static_cast<A>(box.factor) * widen(unpack.buffer[box.first + row * box.stride + col]);
  });
}

template <class T>
__global__ void __launch_bounds__(box_threads) move_boxes(MoveBoxes<T> move) {
  for_each_element(move.boxes, move.blocks, [&](const MovedBox& box, std::int64_t row, std::int64_t col) {
    move.y[box.to + row * box.to_stride + col] = move.x[box.from + row * box.from_stride + col];
  });
}

/// More thread blocks than run at a time, so that they finish at about the same time.
unsigned grid_of(const CudaStream& stream, std::int64_t blocks) {
  return static_cast<unsigned>(std::min<std::int64_t>(std::int64_t{stream.processors()} * 32, blocks));
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const PackBoxes<T>& pack) {
  start(stream, "PackBoxes", pack_boxes<T>, grid_of(stream, pack.blocks), box_threads, pack);
}

template <class T>
void run(const CudaStream& stream, const UnpackBoxes<T>& unpack) {
  require_length("UnpackBoxes", "verdict", unpack.verdict, 1);
  start(stream, "UnpackBoxes", unpack_boxes<T>, grid_of(stream, unpack.blocks), box_threads, unpack);
}

template <class T>
void run(const CudaStream& stream, const MoveBoxes<T>& move) {
  start(stream, "MoveBoxes", move_boxes<T>, grid_of(stream, move.blocks), box_threads, move);
}

LYCEUM_MATRIX_BOXES_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
