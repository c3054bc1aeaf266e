#include "autograd/key_value_cache.h"

#include "core/copy.h"

namespace lyceum {

template <class T>
void continue_from(const Stream& stream, KeyValueCache& cache, Matrix<T>& k, Matrix<T>& v) {
  require(cache.length + k.rows <= cache.capacity, "{} + {} positions exceed the cache's capacity of {}", cache.length,
          k.rows, cache.capacity);
  const auto append = [&](Tensor& cached, Matrix<T>& added) {
    if (!cached.defined()) {
      cached = Tensor::empty(stream, dtype_of<T>, {cache.capacity, added.cols}, MemoryKind::buffers);
    }
    const Matrix<T> all = cached.matrix<T>().rows_from(0, cache.length + added.rows);
    for (std::int64_t r = 0; r < added.rows; ++r) {
      copy_on_device(stream, all.row(cache.length + r), added.row(r), static_cast<std::size_t>(added.cols) * sizeof(T));
    }
    added = all;
  };
  const std::int64_t rows = k.rows;
  append(cache.keys, k);
  append(cache.values, v);
  cache.length += rows;
}

template void continue_from(const Stream&, KeyValueCache&, Matrix<float>&, Matrix<float>&);
template void continue_from(const Stream&, KeyValueCache&, Matrix<bfloat16>&, Matrix<bfloat16>&);
template void continue_from(const Stream&, KeyValueCache&, Matrix<double>&, Matrix<double>&);

}  // namespace lyceum
