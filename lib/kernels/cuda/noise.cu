#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/token_noise.h"

namespace lyceum {

namespace {

constexpr int noise_threads = 256;

/// Calls op(row, column, ε) for every element, with ε its normally distributed noise. One thread per four columns of a
/// row, in a grid-stride loop.
template <class A, class Op>
__global__ void __launch_bounds__(noise_threads)
    for_each_noise(TokenNoise noise, std::uint64_t key, std::int64_t rows, std::int64_t cols, Op op) {
  const auto step = static_cast<std::uint32_t>(noise.step[0]);
  const std::int64_t quads = (cols + 3) / 4, stride = static_cast<std::int64_t>(gridDim.x) * noise_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * noise_threads + threadIdx.x; i < rows * quads;
       i += stride) {
    const std::int64_t r = i / quads, quad = i % quads;
    const std::array<A, 4> normal = token_noise<A>(key, noise.layer, step, noise.first + r, quad);
    for (int e = 0; e < 4; ++e) {
      if (const std::int64_t c = 4 * quad + e; c < cols) op(r, c, normal[e]);
    }
  }
}

template <class A>
struct Forward {
  AddNoise<A> add;
  __device__ void operator()(std::int64_t r, std::int64_t c, A normal) const {
    add.y.row(r)[c] = add.x.row(r)[c] + normal * softplus(add.scale.row(r)[c]);
  }
};

template <class A>
struct Backward {
  AddNoiseBackward<A> add;
  __device__ void operator()(std::int64_t r, std::int64_t c, A normal) const {
    add.d_scale.row(r)[c] = add.dy.row(r)[c] * normal * logistic(add.scale.row(r)[c]);
  }
};

template <class A, class Op>
void run_noise(const CudaStream& stream, const char* name, const TokenNoise& noise, std::int64_t rows,
               std::int64_t cols, const Op& op) {
  start(stream, name, for_each_noise<A, Op>, blocks_for(rows * ((cols + 3) / 4), noise_threads), noise_threads, noise,
        noise_key(noise.seed), rows, cols, op);
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const AddNoise<A>& add) {
  require_fitting(add);
  run_noise<A>(stream, "AddNoise", add.noise, add.y.rows, add.y.cols, Forward<A>{add});
}

template <class A>
void run(const CudaStream& stream, const AddNoiseBackward<A>& add) {
  require_fitting(add);
  run_noise<A>(stream, "AddNoiseBackward", add.noise, add.d_scale.rows, add.d_scale.cols, Backward<A>{add});
}

LYCEUM_NOISE_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
