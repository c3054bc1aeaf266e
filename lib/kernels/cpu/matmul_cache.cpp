#include "kernels/cpu/matmul_cache.h"

#include <algorithm>
#include <type_traits>

#include "core/allocator.h"
#include "kernels/cpu/native_bf16.h"

namespace lyceum {

namespace {

using DataType = dnnl::memory::data_type;

/// Returns the descriptor of a [rows, cols] matrix in row-major order, or in column-major order if `transposed`.
dnnl::memory::desc described(std::int64_t rows, std::int64_t cols, std::int64_t stride, bool transposed,
                             DataType type) {
  using Dims = dnnl::memory::dims;
  return {Dims{rows, cols}, type, transposed ? Dims{1, stride} : Dims{stride, 1}};
}

}  // namespace

MatmulCache::MatmulCache() { dnnl::set_primitive_cache_capacity(0); }

MatmulCache::Compiled MatmulCache::compile(const Key& key, int threads) const {
  const auto a = described(key.m, key.k, key.a_stride, key.transpose_a, DataType::bf16);
  const auto b = described(key.k, key.n, key.b_stride, key.transpose_b, DataType::bf16);
  const auto c = described(key.m, key.n, key.c_stride, false, key.float_out ? DataType::f32 : DataType::bf16);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine_);
  const auto scratchpad = description.scratchpad_desc();
  std::vector<Operands> operands;
  for (int thread = 0; thread < threads; ++thread) {
    operands.push_back({dnnl::memory(a, engine_, DNNL_MEMORY_NONE), dnnl::memory(b, engine_, DNNL_MEMORY_NONE),
                        dnnl::memory(c, engine_, DNNL_MEMORY_NONE),
                        dnnl::memory(scratchpad, engine_, DNNL_MEMORY_NONE)});
  }
  return {dnnl::matmul(description), scratchpad.get_size(), std::move(operands)};
}

std::shared_ptr<MatmulCache::Compiled> MatmulCache::compiled(const Key& key, int threads) {
  const std::lock_guard lock(mutex_);
  ++uses_;
  if (const auto found = compiled_.find(key); found != compiled_.end()) {
    found->second.last_use = uses_;
    return found->second.product;
  }
  if (compiled_.size() >= most_compiled_products) {
    compiled_.erase(std::ranges::min_element(compiled_, {}, [](const auto& entry) { return entry.second.last_use; }));
  }
  const auto product = std::make_shared<Compiled>(compile(key, threads));
  compiled_.emplace(key, Entry{.product = product, .last_use = uses_});
  return product;
}

MatmulCache::Lane& MatmulCache::lane(const CpuStream& stream, int thread, std::size_t scratchpad_bytes) {
  const std::lock_guard lock(mutex_);
  auto found = lanes_.find(thread);
  if (found == lanes_.end()) found = lanes_.emplace(thread, Lane{dnnl::stream(engine_), nullptr}).first;
  Lane& lane = found->second;
  if (lane.scratchpad_bytes < scratchpad_bytes) {
    lane.scratchpad = stream.memory().allocate(scratchpad_bytes, MemoryKind::buffers);
    lane.scratchpad_bytes = scratchpad_bytes;
  }
  return lane;
}

template <class Out>
void MatmulCache::execute(const CpuStream& stream, const Gemm<bfloat16, Out>& gemm, int thread) {
  const Key key{.m = gemm.c.rows,
                .k = gemm.transpose_a ? gemm.a.rows : gemm.a.cols,
                .n = gemm.c.cols,
                .a_stride = gemm.a.stride,
                .b_stride = gemm.b.stride,
                .c_stride = gemm.c.stride,
                .transpose_a = gemm.transpose_a,
                .transpose_b = gemm.transpose_b,
                .accumulate = gemm.accumulate,
                .float_out = std::is_same_v<Out, float>};
  const std::shared_ptr<Compiled> product = compiled(key, stream.threads());
  Lane& own = lane(stream, thread, product->scratchpad_bytes);
  Operands& operands = product->operands[static_cast<std::size_t>(thread)];
  operands.a.set_data_handle(const_cast<bfloat16*>(gemm.a.data));
  operands.b.set_data_handle(const_cast<bfloat16*>(gemm.b.data));
  operands.c.set_data_handle(gemm.c.data);
  operands.scratchpad.set_data_handle(own.scratchpad.get());
  product->primitive.execute(own.stream, {{DNNL_ARG_SRC, operands.a},
                                          {DNNL_ARG_WEIGHTS, operands.b},
                                          {DNNL_ARG_DST, operands.c},
                                          {DNNL_ARG_SCRATCHPAD, operands.scratchpad}});
  own.stream.wait();
}

template void MatmulCache::execute(const CpuStream&, const Gemm<bfloat16, bfloat16>&, int);
template void MatmulCache::execute(const CpuStream&, const Gemm<bfloat16, float>&, int);

}  // namespace lyceum
