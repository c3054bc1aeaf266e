#include "kernels/adamw.h"
#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int threads = 256;

/// An AdamWStep's constants, made in double and rounded once: 1 − β₂ has no bits to lose.
template <class A>
struct Constants {
  A beta1, rest1, beta2, rest2, rate, inverse_bias2, eps, decay;
};

template <int width, class T>
__device__ void step_pack(const AdamWStep<T>& step, const Constants<Accumulator<T>>& k, Accumulator<T> scale,
                          std::int64_t i) {
  using A = Accumulator<T>;
  const auto gradient = load<width>(step.gradient.data() + i);
  auto exp_avg = load<width>(step.exp_avg.data() + i), exp_avg_sq = load<width>(step.exp_avg_sq.data() + i),
       master = load<width>(step.master.data() + i);
  Pack<T, width> weight;
  for (int e = 0; e < width; ++e) {
    const A g = gradient[e] * scale;
    const A m = k.beta1 * exp_avg[e] + k.rest1 * g;
    const A v = k.beta2 * exp_avg_sq[e] + k.rest2 * g * g;
    const A w = master[e];
    exp_avg[e] = m;
    exp_avg_sq[e] = v;
    master[e] = w - (k.rate * m / (std::sqrt(v * k.inverse_bias2) + k.eps) + k.decay * w);
    weight[e] = narrow<T>(master[e]);
  }
  store(step.exp_avg.data() + i, exp_avg);
  store(step.exp_avg_sq.data() + i, exp_avg_sq);
  store(step.master.data() + i, master);
  store(step.weight.data() + i, weight);
}

template <int width, class T>
__global__ void __launch_bounds__(threads) step_elements(AdamWStep<T> step, Constants<Accumulator<T>> constants) {
  const double clip = step.clip.empty() ? 1.0 : step.clip[0];
  const auto scale = static_cast<Accumulator<T>>(step.gradient_scale * clip);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  const auto count = static_cast<std::int64_t>(step.weight.size());
  const std::int64_t packs = count / width;
  for (std::int64_t i = first; i < packs; i += stride) step_pack<width>(step, constants, scale, i * width);
  for (std::int64_t i = packs * width + first; i < count; i += stride) step_pack<1>(step, constants, scale, i);
}

/// A block a sum: a thread adds up every threads-th element, then the threads' sums are joined.
template <class A>
__global__ void __launch_bounds__(threads) sum_squares(SumOfSquares<A> norm) {
  const auto count = static_cast<std::int64_t>(norm.x.size()), sums = static_cast<std::int64_t>(norm.sums.size());
  for (std::int64_t at = blockIdx.x; at < sums; at += gridDim.x) {
    const std::int64_t begin = at * norm.block, rest = count - begin;
    const std::int64_t end = begin + (norm.block < rest ? norm.block : rest);
    double sum = 0;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += threads) {
      sum += static_cast<double>(norm.x[i]) * static_cast<double>(norm.x[i]);
    }
    sum = join_block<threads>(sum, Sum{});
    if (threadIdx.x == 0) norm.sums[at] = sum;
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const AdamWStep<T>& step) {
  using A = Accumulator<T>;
  const auto count = static_cast<std::int64_t>(step.weight.size());
  require_length("AdamWStep", "master", step.master, count);
  require_length("AdamWStep", "exp_avg", step.exp_avg, count);
  require_length("AdamWStep", "exp_avg_sq", step.exp_avg_sq, count);
  require_length("AdamWStep", "gradient", step.gradient, count);
  const Constants<A> constants{.beta1 = static_cast<A>(step.beta1),
                               .rest1 = static_cast<A>(1 - step.beta1),
                               .beta2 = static_cast<A>(step.beta2),
                               .rest2 = static_cast<A>(1 - step.beta2),
                               .rate = static_cast<A>(step.lr / step.bias1),
                               .inverse_bias2 = static_cast<A>(1 / step.bias2),
                               .eps = static_cast<A>(step.eps),
                               .decay = static_cast<A>(step.lr * step.weight_decay)};
  constexpr int width = pack_width<A>;  // of the four arrays of A; the weights then are in packs of 8 bytes
  const bool packed = is_aligned(step.master.data()) && is_aligned(step.exp_avg.data()) &&
                      is_aligned(step.exp_avg_sq.data()) && is_aligned(step.gradient.data()) &&
                      is_aligned(step.weight.data());
  start(stream, "AdamWStep", packed ? step_elements<width, T> : step_elements<1, T>,
        blocks_for(count, packed ? threads * width : threads), threads, step, constants);
}

template <class A>
void run(const CudaStream& stream, const SumOfSquares<A>& norm) {
  const auto count = static_cast<std::int64_t>(norm.x.size());
  require(norm.block > 0, "SumOfSquares: blocks of {} elements", norm.block);
  const std::int64_t blocks = (count + norm.block - 1) / norm.block;
  require_length("SumOfSquares", "sums", norm.sums, blocks);
  start(stream, "SumOfSquares", sum_squares<A>, blocks_for(blocks), threads, norm);
}

template void run(const CudaStream&, const AdamWStep<float>&);
template void run(const CudaStream&, const AdamWStep<bfloat16>&);
template void run(const CudaStream&, const AdamWStep<double>&);
template void run(const CudaStream&, const SumOfSquares<float>&);
template void run(const CudaStream&, const SumOfSquares<double>&);

}  // namespace lyceum
