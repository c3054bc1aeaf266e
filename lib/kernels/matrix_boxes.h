#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/flat_blocks.h"
#include "kernels/instances.h"
#include "kernels/weight_update.h"

namespace lyceum {

/// A rectangle of a matrix that is copied between memory of type A, such as a share's gradients, and a buffer. The
/// elements of a row of the rectangle are adjacent in both. A table of boxes is traversed by BlockWalk.
template <class A>
struct StoredBox {
  A* memory;                   // its first element
  std::int64_t memory_stride;  // elements from one row to the next in memory
  std::int64_t first, stride;  // its first element in the buffer, and elements from one row to the next there
  std::int64_t rows, cols;     // not 0
  std::int64_t first_block;    // number of its first block of flat_block elements among the blocks of all boxes
  double factor = 1;           // applied by UnpackBoxes
};

/// Copies boxes from memory to a buffer of type T, and rounds.
template <class T>
struct PackBoxes {
  std::span<const StoredBox<Accumulator<T>>> boxes;
  std::int64_t blocks;  // number of blocks of all boxes
  std::span<T> buffer;
};

/// Copies boxes from the buffer back to memory: memory = factor · buffer. Does nothing if verdict.skip is not 0.
template <class T>
struct UnpackBoxes {
  std::span<const StoredBox<Accumulator<T>>> boxes;
  std::int64_t blocks;  // number of blocks of all boxes
  std::span<const T> buffer;
  std::span<const StepVerdict> verdict;  // [1]
};

/// A rectangle of a matrix that is copied from one buffer to another. A table of boxes is traversed by BlockWalk.
struct MovedBox {
  std::int64_t from, from_stride, to, to_stride;  // first element, and elements from one row to the next
  std::int64_t rows, cols;                        // not 0
  std::int64_t first_block;                       // as in StoredBox
};

/// Copies boxes from buffer x to buffer y.
template <class T>
struct MoveBoxes {
  std::span<const MovedBox> boxes;
  std::int64_t blocks;  // number of blocks of all boxes
  std::span<const T> x;
  std::span<T> y;
};

template <class T>
void run(const CpuStream& stream, const PackBoxes<T>& pack);
template <class T>
void run(const CpuStream& stream, const UnpackBoxes<T>& unpack);
template <class T>
void run(const CpuStream& stream, const MoveBoxes<T>& move);

template <class T>
void run(const CudaStream& stream, const PackBoxes<T>& pack);
template <class T>
void run(const CudaStream& stream, const UnpackBoxes<T>& unpack);
template <class T>
void run(const CudaStream& stream, const MoveBoxes<T>& move);

#define LYCEUM_MATRIX_BOXES_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, PackBoxes)          \
  LYCEUM_FLOATS(INSTANCE, UnpackBoxes)        \
  LYCEUM_FLOATS(INSTANCE, MoveBoxes)

}  // namespace lyceum
