#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/dropout_numbers.h"

namespace lyceum {

namespace {

constexpr int dropout_threads = 256;
constexpr std::int64_t many_threads = 1 << 16;  // about a third of those that an H100 runs at once

/// Reads and writes up to four elements of a row from column c on, with one access each if `packed`.
template <bool packed, class T, class F>
__device__ void change_quad(const T* x, T* y, std::int64_t c, std::int64_t cols, const F& f) {
  if constexpr (packed) {
    auto values = load<4>(x + c);
    for (int e = 0; e < 4; ++e) values[e] = f(values[e], e);
    store(y + c, values);
  } else {
    for (int e = 0; e < 4 && c + e < cols; ++e) y[c + e] = f(x[c + e], e);
  }
}

/// One thread per four columns of `chunk` rows, in a grid-stride loop. A thread follows the runs of dropped tokens from
/// row to row.
template <bool packed, class T>
__global__ void __launch_bounds__(dropout_threads)
    apply_dropout(ApplyDropout<T> dropout, std::uint64_t key, std::uint32_t begins, std::int64_t chunk) {
  using A = Accumulator<T>;
  const DropoutMask& mask = dropout.mask;
  const auto step = static_cast<std::uint32_t>(mask.step[0]);
  const auto block = static_cast<std::int32_t>(mask.block);
  const A scale = static_cast<A>(1 / (1 - dropout.rate));
  const std::int64_t rows = dropout.y.rows, cols = dropout.y.cols, quads = (cols + 3) / 4;
  const std::int64_t items = (rows + chunk - 1) / chunk * quads;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * dropout_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * dropout_threads + threadIdx.x; i < items; i += stride) {
    const std::int64_t first = i / quads * chunk, last = first + chunk < rows ? first + chunk : rows, quad = i % quads;
    std::int32_t left[4] = {};
    const auto pass = [&](std::int64_t position) {
      const std::array<std::uint32_t, 4> words = dropout_words(key, mask.site, step, position, quad);
      for (int e = 0; e < 4; ++e) left[e] = next_in_run(left[e], words[e], begins, block);
    };
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t token = mask.first + r, position = random_position(mask, token);
      if (block > 1 && (r == first || begins_sequence(mask, token))) {
        for (int e = 0; e < 4; ++e) left[e] = 0;
        for (std::int64_t before = position - (block - 1); before < position; ++before) pass(before);
      }
      pass(position);
      change_quad<packed>(dropout.x.row(r), dropout.y.row(r), 4 * quad, cols,
                          [&](T value, int e) { return narrow<T>(widen(value) * (left[e] > 0 ? A{0} : scale)); });
    }
  }
}

/// One thread per four columns of a row, in a grid-stride loop.
template <bool packed, class T>
__global__ void __launch_bounds__(dropout_threads)
    apply_concrete_dropout(ApplyConcreteDropout<T> dropout, std::uint64_t key) {
  using A = Accumulator<T>;
  const DropoutMask& mask = dropout.mask;
  const auto step = static_cast<std::uint32_t>(mask.step[0]);
  const LearntRate<A> rate(widen(dropout.logit[0]));
  const std::int64_t cols = dropout.y.cols, quads = (cols + 3) / 4, items = dropout.y.rows * quads;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * dropout_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * dropout_threads + threadIdx.x; i < items; i += stride) {
    const std::int64_t r = i / quads, quad = i % quads;
    const std::array<std::uint32_t, 4> words = dropout_words(key, mask.site, step, mask.first + r, quad);
    change_quad<packed>(dropout.x.row(r), dropout.y.row(r), 4 * quad, cols,
                        [&](T value, int e) { return narrow<T>(widen(value) * (rate.kept(words[e]) * rate.scale)); });
  }
}

/// One thread block per row, in a grid-stride loop.
template <class T>
__global__ void __launch_bounds__(dropout_threads)
    concrete_dropout_grad(ConcreteDropoutGrad<T> grad, std::uint64_t key) {
  using A = Accumulator<T>;
  const DropoutMask& mask = grad.mask;
  const auto step = static_cast<std::uint32_t>(mask.step[0]);
  const LearntRate<A> rate(widen(grad.logit[0]));
  const std::int64_t cols = grad.x.cols, quads = (cols + 3) / 4;
  for (std::int64_t r = blockIdx.x; r < grad.x.rows; r += gridDim.x) {
    A sum = 0;
    for (std::int64_t quad = threadIdx.x; quad < quads; quad += dropout_threads) {
      const std::array<std::uint32_t, 4> words = dropout_words(key, mask.site, step, mask.first + r, quad);
      for (int e = 0; e < 4 && 4 * quad + e < cols; ++e) {
        const A kept = rate.kept(words[e]);
        sum += widen(grad.dy.row(r)[4 * quad + e]) * widen(grad.x.row(r)[4 * quad + e]) * kept * rate.slope(kept);
      }
    }
    sum = join_block<dropout_threads>(sum, Sum{});
    if (threadIdx.x == 0) grad.d_logit[r] = sum * rate.scale;
  }
}

template <class T, class Description>
__global__ void compute_one(Description description) {
  compute(description, widen(description.logit[0]));
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const ApplyDropout<T>& dropout) {
  require_fitting(dropout);
  const std::int64_t block = dropout.mask.block, rows = dropout.y.rows, quads = (dropout.y.cols + 3) / 4;
  // The words before a chunk are computed once more, so chunks are long, unless there are few of them.
  const auto items = [&](std::int64_t chunk) { return (rows + chunk - 1) / chunk * quads; };
  std::int64_t chunk = block == 1 ? 1 : 4 * block;
  while (chunk > block && items(chunk) < many_threads) chunk /= 2;
  const bool packed = fits_packs(dropout.x, 4) && fits_packs(dropout.y, 4);
  start(stream, "ApplyDropout", packed ? apply_dropout<true, T> : apply_dropout<false, T>,
        blocks_for(items(chunk), dropout_threads), dropout_threads, dropout, dropout_key(dropout.mask.seed),
        run_threshold(dropout.rate, block), chunk);
}

template <class T>
void run(const CudaStream& stream, const ApplyConcreteDropout<T>& dropout) {
  require_fitting(dropout);
  const bool packed = fits_packs(dropout.x, 4) && fits_packs(dropout.y, 4);
  start(stream, "ApplyConcreteDropout", packed ? apply_concrete_dropout<true, T> : apply_concrete_dropout<false, T>,
        blocks_for(dropout.y.rows * ((dropout.y.cols + 3) / 4), dropout_threads), dropout_threads, dropout,
        dropout_key(dropout.mask.seed));
}

template <class T>
void run(const CudaStream& stream, const ConcreteDropoutGrad<T>& grad) {
  require_fitting(grad);
  start(stream, "ConcreteDropoutGrad", concrete_dropout_grad<T>, blocks_for(grad.x.rows), dropout_threads, grad,
        dropout_key(grad.mask.seed));
}

template <class T>
void run(const CudaStream& stream, const ConcreteRegulariser<T>& regulariser) {
  require_fitting(regulariser);
  start(stream, "ConcreteRegulariser", compute_one<T, ConcreteRegulariser<T>>, 1, 1, regulariser);
}

template <class T>
void run(const CudaStream& stream, const ConcreteRegulariserBackward<T>& backward) {
  require_fitting(backward);
  start(stream, "ConcreteRegulariserBackward", compute_one<T, ConcreteRegulariserBackward<T>>, 1, 1, backward);
}

LYCEUM_DROPOUT_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
