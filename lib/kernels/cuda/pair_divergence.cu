#include "kernels/cuda/device.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/pair_divergence_checks.h"

namespace lyceum {

namespace {

constexpr int pair_threads = 256;

template <int width, class T>
__global__ void __launch_bounds__(pair_threads) pair_divergence(PairDivergence<T> divergence) {
  using A = Accumulator<T>;
  const std::int64_t pairs = divergence.logits.rows / 2, seq_len = divergence.seq_len;
  for (std::int64_t pair = blockIdx.x; pair < pairs; pair += gridDim.x) {
    const std::int64_t row = first_row_of(pair, seq_len);
    const T *a = divergence.logits.row(row), *b = divergence.logits.row(row + seq_len);
    const A a_sum = divergence.log_sum_exp[row], b_sum = divergence.log_sum_exp[row + seq_len];
    const std::int64_t words = divergence.targets[row] == no_target ? 0 : divergence.logits.cols;
    A symmetric = 0, forward = 0;
    for (std::int64_t c = threadIdx.x * width; c < words; c += pair_threads * width) {
      const auto of_first = load<width>(a + c), of_second = load<width>(b + c);
      for (int e = 0; e < width; ++e) {
        const A log_p = widen(of_first[e]) - a_sum, log_q = widen(of_second[e]) - b_sum;
        const A p = std::exp(log_p), q = std::exp(log_q), d = log_p - log_q;
        symmetric += (p - q) * d;
        forward += p * d;
      }
    }
    symmetric = join_block<pair_threads>(symmetric, Sum{});
    forward = join_block<pair_threads>(forward, Sum{});
    if (threadIdx.x != 0) continue;
    divergence.sums.row(0)[pair] = A(0.5) * symmetric;
    divergence.sums.row(1)[pair] = forward;
  }
}

template <int width, class T>
__global__ void __launch_bounds__(pair_threads)
    paired_cross_entropy_backward(PairedCrossEntropyBackward<T> loss, IndexCheck targets) {
  using A = Accumulator<T>;
  const std::int64_t pairs = loss.logits.rows / 2, cols = loss.logits.cols, seq_len = loss.seq_len;
  const A scale = loss.scale[0], z_scale = loss.z_scale.empty() ? A{0} : loss.z_scale[0], of_pairs = loss.pair_scale[0];
  for (std::int64_t pair = blockIdx.x; pair < pairs; pair += gridDim.x) {
    const std::int64_t row = first_row_of(pair, seq_len);
    if (threadIdx.x == 0) targets.passes(loss.targets[row]);
    const PairSlopes<A> slopes = slopes_of(loss, pair, row, scale, z_scale, of_pairs);
    const bool counts = loss.targets[row] != no_target;
    const std::int64_t target = loss.targets[row] - loss.first;
    for (std::int64_t c = threadIdx.x * width; c < cols; c += pair_threads * width) {
      const auto of_first = load<width>(loss.logits.row(row) + c);
      const auto of_second = load<width>(loss.logits.row(row + seq_len) + c);
      Pack<T, width> d_first, d_second;
      for (int e = 0; e < width; ++e) {
        const A a = widen(of_first[e]), b = widen(of_second[e]);
        const A p = std::exp(a - slopes.first_log_sum), q = std::exp(b - slopes.second_log_sum);
        const PairGradients<A> gradients = slopes.gradients(p, q, a, b, c + e == target);
        d_first[e] = narrow<T>(counts ? gradients.first : A{0});
        d_second[e] = narrow<T>(counts ? gradients.second : A{0});
      }
      store(loss.d_logits.row(row) + c, d_first);
      store(loss.d_logits.row(row + seq_len) + c, d_second);
    }
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const PairDivergence<T>& divergence) {
  require_fitting(divergence);
  constexpr int width = pack_width<T>;
  start(stream, "PairDivergence",
        fits_packs(divergence.logits, width) ? pair_divergence<width, T> : pair_divergence<1, T>,
        blocks_for(divergence.logits.rows / 2), pair_threads, divergence);
}

template <class T>
void run(const CudaStream& stream, const PairedCrossEntropyBackward<T>& loss) {
  require_fitting(loss);
  const IndexCheck targets(stream, "PairedCrossEntropyBackward", "targets", no_target, loss.vocab);
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(loss.logits, width) && fits_packs(loss.d_logits, width);
  start(stream, "PairedCrossEntropyBackward",
        packed ? paired_cross_entropy_backward<width, T> : paired_cross_entropy_backward<1, T>,
        blocks_for(loss.logits.rows / 2), pair_threads, loss, targets);
}

LYCEUM_PAIR_DIVERGENCE_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
