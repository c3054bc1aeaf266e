#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/qk_norm_checks.h"

namespace lyceum {

namespace {

constexpr int qk_threads = 256, qk_warps = qk_threads / warp_size;

/// Returns the address of the weight of element c of head `head`; heads count those of queries, then those of keys.
template <class Norm>
__device__ auto weight_at(const Norm& norm, std::int64_t head, std::int64_t c) {
  return (head < norm.shape.heads ? norm.q_weight : norm.k_weight).data() + norm.shape.first_weight(head) + c;
}

template <int width, class T>
__device__ Accumulator<T> sum_pack(const QkSquares<T>& norm, std::int64_t t, std::int64_t head, std::int64_t c) {
  const auto xs = load<width>(norm.x.row(t) + head * norm.shape.head_dim + c);
  Accumulator<T> sum = 0;
  for (int e = 0; e < width; ++e) sum += widen(xs[e]) * widen(xs[e]);
  return sum;
}

template <int width, class T>
__device__ Accumulator<T> sum_pack(const QkDots<T>& norm, std::int64_t t, std::int64_t head, std::int64_t c) {
  const std::int64_t column = head * norm.shape.head_dim + c;
  const auto xs = load<width>(norm.x.row(t) + column), dys = load<width>(norm.dy.row(t) + column);
  const auto weight = load<width>(weight_at(norm, head, c));
  Accumulator<T> sum = 0;
  for (int e = 0; e < width; ++e) sum += widen(dys[e]) * widen(weight[e]) * widen(xs[e]);
  return sum;
}

/// One warp per group of a token, in a grid-stride loop.
template <int width, class Norm>
__global__ void __launch_bounds__(qk_threads) sum_groups(Norm norm) {
  using A = std::remove_pointer_t<decltype(norm.sums.data)>;
  const QkNormShape& shape = norm.shape;
  const std::int64_t groups = shape.groups(), dim = shape.head_dim, stride = std::int64_t{gridDim.x} * qk_warps;
  const std::int64_t first = std::int64_t{blockIdx.x} * qk_warps + threadIdx.x / warp_size;
  for (std::int64_t i = first; i < norm.x.rows * groups; i += stride) {
    const std::int64_t t = i / groups, g = i % groups, cols = shape.heads_in(g) * dim;
    A sum = 0;
    for (std::int64_t c = threadIdx.x % warp_size * width; c < cols; c += warp_size * width) {
      sum += sum_pack<width>(norm, t, shape.first_head(g) + c / dim, c % dim);
    }
    sum = join_warp(sum, Sum{});
    if (threadIdx.x % warp_size == 0) norm.sums.row(t)[g] = sum;
  }
}

/// One thread block per token, in a grid-stride loop.
template <int width, class T>
__global__ void __launch_bounds__(qk_threads) qk_norm_forward(QkNormForward<T> norm) {
  using A = Accumulator<T>;
  const QkNormShape& shape = norm.shape;
  const auto inverse_of = [&](std::int64_t t, std::int64_t g) {
    return A{1} / std::sqrt(norm.squares.row(t)[g] / static_cast<A>(shape.elements(g)) + static_cast<A>(norm.eps));
  };
  for (std::int64_t t = blockIdx.x; t < norm.x.rows; t += gridDim.x) {
    for (std::int64_t g = threadIdx.x; g < shape.groups(); g += qk_threads) {
      norm.inverse_rms.row(t)[g] = inverse_of(t, g);
    }
    for (std::int64_t c = threadIdx.x * width; c < shape.width(); c += qk_threads * width) {
      auto values = load<width>(norm.x.row(t) + c);
      if (c < shape.normed()) {
        const std::int64_t head = c / shape.head_dim;
        const A inverse = inverse_of(t, shape.group_of(head));
        const auto weight = load<width>(weight_at(norm, head, c % shape.head_dim));
        for (int e = 0; e < width; ++e) values[e] = narrow<T>(widen(values[e]) * inverse * widen(weight[e]));
      }
      store(norm.y.row(t) + c, values);
    }
  }
}

/// dx = inverse · (dy ⊙ w − x · inverse² · mean(dy ⊙ w ⊙ x))
template <int width, class T>
__global__ void __launch_bounds__(qk_threads) qk_norm_backward(QkNormBackward<T> norm) {
  using A = Accumulator<T>;
  const QkNormShape& shape = norm.shape;
  for (std::int64_t t = blockIdx.x; t < norm.x.rows; t += gridDim.x) {
    for (std::int64_t c = threadIdx.x * width; c < shape.width(); c += qk_threads * width) {
      auto values = load<width>(norm.dy.row(t) + c);
      if (c < shape.normed()) {
        const std::int64_t head = c / shape.head_dim, g = shape.group_of(head);
        const A inverse = norm.inverse_rms.row(t)[g];
        const A along_x = norm.dots.row(t)[g] * inverse * inverse / static_cast<A>(shape.elements(g));
        const auto xs = load<width>(norm.x.row(t) + c), weight = load<width>(weight_at(norm, head, c % shape.head_dim));
        for (int e = 0; e < width; ++e) {
          values[e] = narrow<T>(inverse * (widen(values[e]) * widen(weight[e]) - widen(xs[e]) * along_x));
        }
      }
      store(norm.dx.row(t) + c, values);
    }
  }
}

/// Terms of the gradient of a weight, summed over all heads that share the weight.
template <int width, class T>
struct WeightTerms {
  QkNormWeightGrad<T> norm;

  __device__ void add_row(std::int64_t t, std::int64_t c, Accumulator<T> (&sum)[width]) const {
    const QkNormShape& shape = norm.shape;
    const std::int64_t first = norm.of_keys ? shape.heads : 0, heads = norm.of_keys ? shape.kv_heads : shape.heads;
    // The only head with this weight, unless all heads share the weights.
    const std::int64_t own = first + c / shape.head_dim;
    const std::int64_t end = shape.by_head ? first + heads : own + 1;
    for (std::int64_t head = own; head < end; ++head) {
      const std::int64_t column = head * shape.head_dim + c % shape.head_dim;
      const auto xs = load<width>(norm.x.row(t) + column), dys = load<width>(norm.dy.row(t) + column);
      const Accumulator<T> inverse = norm.inverse_rms.row(t)[shape.group_of(head)];
      for (int e = 0; e < width; ++e) sum[e] += widen(dys[e]) * (widen(xs[e]) * inverse);
    }
  }
};

/// True if heads and all operands can be processed in packs of `width` elements.
template <int width, class... Operands>
bool in_packs(const QkNormShape& shape, const Operands&... operands) {
  return shape.head_dim % width == 0 && (fits_packs(operands, width) && ...);
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const QkSquares<T>& norm) {
  require_fitting(norm);
  constexpr int width = pack_width<T>;
  const bool packed = in_packs<width>(norm.shape, norm.x);
  start(stream, "QkSquares", packed ? sum_groups<width, QkSquares<T>> : sum_groups<1, QkSquares<T>>,
        blocks_for(norm.sums.size(), qk_warps), qk_threads, norm);
}

template <class T>
void run(const CudaStream& stream, const QkNormForward<T>& norm) {
  require_fitting(norm);
  constexpr int width = pack_width<T>;
  const bool packed = in_packs<width>(norm.shape, norm.x, norm.y, norm.q_weight, norm.k_weight);
  start(stream, "QkNormForward", packed ? qk_norm_forward<width, T> : qk_norm_forward<1, T>, blocks_for(norm.x.rows),
        qk_threads, norm);
}

template <class T>
void run(const CudaStream& stream, const QkDots<T>& norm) {
  require_fitting(norm);
  constexpr int width = pack_width<T>;
  const bool packed = in_packs<width>(norm.shape, norm.x, norm.dy, norm.q_weight, norm.k_weight);
  start(stream, "QkDots", packed ? sum_groups<width, QkDots<T>> : sum_groups<1, QkDots<T>>,
        blocks_for(norm.sums.size(), qk_warps), qk_threads, norm);
}

template <class T>
void run(const CudaStream& stream, const QkNormBackward<T>& norm) {
  require_fitting(norm);
  constexpr int width = pack_width<T>;
  const bool packed = in_packs<width>(norm.shape, norm.x, norm.dy, norm.dx, norm.q_weight, norm.k_weight);
  start(stream, "QkNormBackward", packed ? qk_norm_backward<width, T> : qk_norm_backward<1, T>, blocks_for(norm.x.rows),
        qk_threads, norm);
}

template <class T>
void run(const CudaStream& stream, const QkNormWeightGrad<T>& norm) {
  require_fitting(norm);
  constexpr int width = pack_width<T>;
  if (in_packs<width>(norm.shape, norm.x, norm.dy)) {
    add_column_sums<width>(stream, "QkNormWeightGrad", norm.x.rows, norm.d_weight, WeightTerms<width, T>{norm});
  } else {
    add_column_sums<1>(stream, "QkNormWeightGrad", norm.x.rows, norm.d_weight, WeightTerms<1, T>{norm});
  }
}

LYCEUM_QK_NORM_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
