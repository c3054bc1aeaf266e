#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Keys and values of the past positions of one sequence. Passes that continue the sequence append theirs. The
/// attention determines the contents of a position; keys and values may differ in width.
struct KeyValueCache {
  std::int64_t capacity;    // positions
  Tensor keys{}, values{};  // [capacity, columns]; allocated by the first pass
  std::int64_t length = 0;  // positions stored so far
};

/// Appends the rows of `k` and `v`, one per new position, to the cache. Afterwards `k` and `v` are views of all
/// positions in the cache. Throws an Error if the cache is full.
template <class T>
void continue_from(const Stream& stream, KeyValueCache& cache, Matrix<T>& k, Matrix<T>& v);

}  // namespace lyceum
