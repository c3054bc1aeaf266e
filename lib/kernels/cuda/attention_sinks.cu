#include "kernels/attention_sinks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int sink_threads = 256, sink_warps = sink_threads / warp_size;

/// Calls f(token, head) for every pair on one warp, in a grid-stride loop.
template <class F>
__device__ void for_each_head(std::int64_t tokens, std::int64_t heads, F&& f) {
  const std::int64_t stride = std::int64_t{gridDim.x} * sink_warps;
  const std::int64_t first = std::int64_t{blockIdx.x} * sink_warps + threadIdx.x / warp_size;
  for (std::int64_t i = first; i < tokens * heads; i += stride) f(i / heads, i % heads);
}

template <class T>
__global__ void __launch_bounds__(sink_threads) apply_sinks(ApplySinks<T> apply, std::int64_t dim) {
  using A = Accumulator<T>;
  const int lane = threadIdx.x % warp_size;
  for_each_head(apply.out.rows, apply.log_sum_exp.cols, [&](std::int64_t token, std::int64_t head) {
    const A sink = widen(apply.sinks.data()[head]), keys = apply.log_sum_exp.row(token)[head];
    const A factor = A(1) / (A(1) + exp(sink - keys));
    T* out = apply.out.row(token) + head * dim;
    for (std::int64_t d = lane; d < dim; d += warp_size) out[d] = narrow<T>(widen(out[d]) * factor);
    __syncwarp();  // all lanes have read log_sum_exp
    if (lane == 0) apply.log_sum_exp.row(token)[head] = fmax(keys, sink) + log1p(exp(-fabs(keys - sink)));
  });
}

template <class T>
__global__ void __launch_bounds__(sink_threads) sink_gradients(SinkGradients<T> sinks, std::int64_t dim) {
  using A = Accumulator<T>;
  const int lane = threadIdx.x % warp_size;
  for_each_head(sinks.out.rows, sinks.d_sinks.cols, [&](std::int64_t token, std::int64_t head) {
    const T *out = sinks.out.row(token) + head * dim, *d_out = sinks.d_out.row(token) + head * dim;
    A sum = 0;
    for (std::int64_t d = lane; d < dim; d += warp_size) sum += widen(out[d]) * widen(d_out[d]);
    sum = join_warp(sum, Sum());
    if (lane == 0) {
      const A sink = widen(sinks.sinks.data()[head]);
      sinks.d_sinks.row(token)[head] = -exp(sink - sinks.log_sum_exp.row(token)[head]) * sum;
    }
  });
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const ApplySinks<T>& apply) {
  const std::int64_t dim = require_fitting(apply);
  start(stream, "ApplySinks", apply_sinks<T>, blocks_for(apply.log_sum_exp.size(), sink_warps), sink_threads, apply,
        dim);
}

template <class T>
void run(const CudaStream& stream, const SinkGradients<T>& sinks) {
  const std::int64_t dim = require_fitting(sinks);
  start(stream, "SinkGradients", sink_gradients<T>, blocks_for(sinks.d_sinks.size(), sink_warps), sink_threads, sinks,
        dim);
}

LYCEUM_ATTENTION_SINK_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
