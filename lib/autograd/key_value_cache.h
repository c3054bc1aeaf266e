#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Keys and values of the past positions of one sequence in one layer. Each pass that continues the sequence appends
/// the rows of its positions. RotaryAttention stores rotated keys. Keys and values may differ in width. Latent
/// attention stores one row per position in `keys`, from which it computes both, and leaves `values` undefined. With a
/// window, keys and values are ring buffers: position p is in row p % rows(), and a new position replaces the oldest
/// one.
struct KeyValueCache {
  std::int64_t capacity;    // positions of the longest sequence
  std::int64_t window = 0;  // positions that a query sees at most, see AttentionShape; 0: all
  Tensor keys{}, values{};  // [rows(), columns]; allocated by the first pass
  std::int64_t length = 0;  // positions appended so far; 0 for a new sequence

  /// Returns the number of positions that are stored.
  std::int64_t rows() const { return window > 0 ? std::min(window, capacity) : capacity; }
};

/// Appends the rows of `k` and `v`, one per new position, to the cache. Then sets `k` and `v` to the rows that the new
/// positions attend to: all positions so far or, with a window, at least those that some new position sees. They are in
/// the order of positions and end with the newest, with one exception: if a single position is appended to a full ring
/// buffer, they are in the order of the buffer, which a softmax does not depend on. `k` and `v` then refer to the
/// cache, to the new rows, or to the two returned tensors, which the caller must keep until they have been used. Throws
/// an Error if the sequence becomes longer than the capacity.
template <class T>
[[nodiscard]] std::array<Tensor, 2> continue_from(const Stream& stream, KeyValueCache& cache, Matrix<T>& k,
                                                  Matrix<T>& v);
/// Does the same for a cache that uses only `keys`: appends `rows`, and sets `rows` to the rows that the new positions
/// attend to. Returns the tensor that the caller must keep.
template <class T>
[[nodiscard]] Tensor continue_from(const Stream& stream, KeyValueCache& cache, Matrix<T>& rows);

}  // namespace lyceum
