#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Keys and values of the past of one sequence, to which passes that continue from there add theirs. What a position
/// keeps in either is up to the attention: they need not have the same width.
struct KeyValueCache {
  std::int64_t capacity;    // positions
  Tensor keys{}, values{};  // [capacity, columns of what is added], from the first pass on
  std::int64_t length = 0;  // positions that are there
};

/// Adds one row per new position to the keys and the values of a cache. Afterwards `k` and `v` are the rows of all its
/// positions.
template <class T>
void continue_from(const Stream& stream, KeyValueCache& cache, Matrix<T>& k, Matrix<T>& v);

}  // namespace lyceum
