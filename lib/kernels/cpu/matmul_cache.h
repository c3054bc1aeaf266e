#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/stream.h"
#include "kernels/gemm.h"

namespace lyceum {

/// A cache of oneDNN's single-threaded bfloat16 matrix products, each compiled for one shape and layout. It keeps at
/// most most_compiled_products of them and evicts the least recently used. A stream keeps one cache (CpuStream::keep).
/// Several threads of the stream may call execute() concurrently: each has its own scratchpad and memory objects.
class MatmulCache {
 public:
  /// Makes an empty cache, and switches off oneDNN's own one, which would keep products that this one has dropped.
  MatmulCache();

  /// Computes the product on the calling thread, which is number `thread` of the stream. No extent may be zero.
  template <class Out>
  void execute(const CpuStream& stream, const Gemm<bfloat16, Out>& gemm, int thread);

 private:
  struct Key {
    std::int64_t m, k, n, a_stride, b_stride, c_stride;
    bool transpose_a, transpose_b, accumulate, float_out;
    auto operator<=>(const Key&) const = default;
  };
  struct Operands {
    dnnl::memory a, b, c, scratchpad;
  };
  struct Compiled {
    dnnl::matmul primitive;
    std::size_t scratchpad_bytes;
    std::vector<Operands> operands;  // one per thread
  };
  struct Entry {
    std::shared_ptr<Compiled> product;  // shared with the threads that execute it
    std::int64_t last_use;              // value of uses_
  };
  /// The state of one thread: a oneDNN stream, and a scratchpad large enough for all products so far.
  struct Lane {
    dnnl::stream stream;
    std::shared_ptr<std::byte> scratchpad;
    std::size_t scratchpad_bytes = 0;
  };

  Compiled compile(const Key& key, int threads) const;
  std::shared_ptr<Compiled> compiled(const Key& key, int threads);
  Lane& lane(const CpuStream& stream, int thread, std::size_t scratchpad_bytes);

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  std::mutex mutex_;  // guards both maps; references to lanes remain valid without it
  std::int64_t uses_ = 0;
  std::map<Key, Entry> compiled_;
  std::map<int, Lane> lanes_;
};

}  // namespace lyceum
