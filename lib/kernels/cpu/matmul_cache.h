#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/stream.h"
#include "kernels/gemm.h"

namespace lyceum {

/// oneDNN's bfloat16 matrix products, compiled once a shape and layout for one thread, kept by a stream. Threads of
/// the stream may execute at once: each has its own scratchpad and memory objects.
class MatmulCache {
 public:
  /// On thread `thread` of the stream; no extent may be zero.
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
    std::vector<Operands> operands;  // by thread
  };
  struct Lane {
    dnnl::stream stream;
    std::shared_ptr<std::byte> scratchpad;
    std::size_t scratchpad_bytes = 0;
  };

  Compiled compile(const Key& key, int threads) const;
  Compiled& compiled(const Key& key, int threads);
  Lane& lane(const CpuStream& stream, int thread, std::size_t scratchpad_bytes);

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  std::mutex mutex_;  // guards both maps; their elements do not move
  std::map<Key, Compiled> compiled_;
  std::map<int, Lane> lanes_;
};

}  // namespace lyceum
