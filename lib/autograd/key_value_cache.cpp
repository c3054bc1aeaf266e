#include "autograd/key_value_cache.h"

#include <algorithm>

#include "core/copy.h"

namespace lyceum {

namespace {

template <class T>
void copy_row(const Stream& stream, const Matrix<T>& to, std::int64_t to_row, const Matrix<T>& from,
              std::int64_t from_row) {
  copy_on_device(stream, to.row(to_row), from.row(from_row), static_cast<std::size_t>(from.cols) * sizeof(T));
}

/// Writes the new rows, the first of which is position `first`, to the ring buffer. Rows that later ones would replace
/// are left out.
template <class T>
void store_rows(const Stream& stream, const Matrix<T>& ring, const Matrix<T>& added, std::int64_t first) {
  for (std::int64_t r = std::max<std::int64_t>(0, added.rows - ring.rows); r < added.rows; ++r) {
    copy_row(stream, ring, (first + r) % ring.rows, added, r);
  }
}

/// Returns the `past` positions before `length` in the ring buffer, in order, followed by the new rows.
template <class T>
Tensor join_rows(const Stream& stream, const Matrix<T>& ring, std::int64_t length, std::int64_t past,
                 const Matrix<T>& added) {
  const Tensor joined = Tensor::empty(stream, dtype_of<T>, {past + added.rows, added.cols});
  const Matrix<T> all = joined.matrix<T>();
  for (std::int64_t r = 0; r < past; ++r) copy_row(stream, all, r, ring, (length - past + r) % ring.rows);
  for (std::int64_t r = 0; r < added.rows; ++r) copy_row(stream, all, past + r, added, r);
  return joined;
}

/// Appends to keys or to values: `cached` is the ring buffer. Returns the memory of `added` if it is not the cache's.
template <class T>
Tensor append(const Stream& stream, const KeyValueCache& cache, Tensor& cached, Matrix<T>& added) {
  if (!cached.defined()) {
    cached = Tensor::empty(stream, dtype_of<T>, {cache.rows(), added.cols}, MemoryKind::buffers);
  }
  const Matrix<T> ring = cached.matrix<T>();
  const std::int64_t end = cache.length + added.rows;
  // One position replaces a position that it does not see, but several would replace some that the first ones see.
  const bool in_ring = end <= ring.rows || added.rows == 1;
  Tensor joined;
  if (!in_ring && cache.length > 0) {
    joined = join_rows(stream, ring, cache.length, std::min(cache.length, ring.rows), added);
  }
  store_rows(stream, ring, added, cache.length);
  if (in_ring) added = ring.rows_from(0, std::min(end, ring.rows));
  if (joined.defined()) added = joined.matrix<T>();
  return joined;
}

/// Throws an Error if the cache has no room for `rows` more positions.
void require_room(const KeyValueCache& cache, std::int64_t rows) {
  require(cache.length + rows <= cache.capacity, "{} + {} positions exceed the cache's capacity of {}", cache.length,
          rows, cache.capacity);
}

}  // namespace

template <class T>
Tensor continue_from(const Stream& stream, KeyValueCache& cache, Matrix<T>& rows) {
  const std::int64_t added = rows.rows;
  require_room(cache, added);
  const Tensor joined = append(stream, cache, cache.keys, rows);
  cache.length += added;
  return joined;
}

template Tensor continue_from(const Stream&, KeyValueCache&, Matrix<float>&);
template Tensor continue_from(const Stream&, KeyValueCache&, Matrix<bfloat16>&);
template Tensor continue_from(const Stream&, KeyValueCache&, Matrix<double>&);

template <class T>
std::array<Tensor, 2> continue_from(const Stream& stream, KeyValueCache& cache, Matrix<T>& k, Matrix<T>& v) {
  const std::int64_t rows = k.rows;
  require_room(cache, rows);
  std::array joined{append(stream, cache, cache.keys, k), append(stream, cache, cache.values, v)};
  cache.length += rows;
  return joined;
}

template std::array<Tensor, 2> continue_from(const Stream&, KeyValueCache&, Matrix<float>&, Matrix<float>&);
template std::array<Tensor, 2> continue_from(const Stream&, KeyValueCache&, Matrix<bfloat16>&, Matrix<bfloat16>&);
template std::array<Tensor, 2> continue_from(const Stream&, KeyValueCache&, Matrix<double>&, Matrix<double>&);

}  // namespace lyceum
