#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Keys and values of the past positions of one sequence in one layer. Each pass that continues the sequence appends
/// the rows of its positions. RotaryAttention stores rotated keys. Keys and values may differ in width.
struct KeyValueCache {
  std::int64_t capacity;    // positions
  Tensor keys{}, values{};  // [capacity, columns]; allocated by the first pass
  std::int64_t length = 0;  // positions stored so far; 0 for a new sequence
};

/// Appends the rows of `k` and `v`, one per new position, to the cache. Afterwards `k` and `v` are views of all
/// `length` positions in the cache, and no longer of the new rows alone. Throws an Error if the cache has too little
/// room.
template <class T>
void continue_from(const Stream& stream, KeyValueCache& cache, Matrix<T>& k, Matrix<T>& v);

}  // namespace lyceum
