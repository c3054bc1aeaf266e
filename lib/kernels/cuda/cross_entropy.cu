#include "kernels/cross_entropy_checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int loss_threads = 256;

/// The maximum m of some logits and Σ exp(x − m). If no logit is above −∞, the sum is 0. If one is NaN or +∞, it is
/// NaN.
template <class A>
struct ExpSum {
  A largest, sum;
};

/// Adds the logits of a pack.
template <int width, class T>
__device__ void add_pack(ExpSum<Accumulator<T>>& of, const Pack<T, width>& pack) {
  using A = Accumulator<T>;
  A largest = of.largest;
  for (int e = 0; e < width; ++e) largest = Largest{}(largest, widen(pack[e]));
  if (largest > of.largest) of.sum *= std::exp(of.largest - largest);
  of.largest = largest;
  const A shift = std::isinf(largest) && largest < 0 ? A{0} : largest;
  for (int e = 0; e < width; ++e) of.sum += std::exp(widen(pack[e]) - shift);
}

/// Returns the sum relative to `largest` instead of of.largest. If there was no logit (maximum −∞), the sum is 0.
template <class A>
__device__ A rescaled(const ExpSum<A>& of, A largest) {
  return of.largest == largest ? of.sum : of.sum * std::exp(of.largest - largest);
}

/// Returns the ExpSum of a row of `cols` logits, the same in every thread of the block. All threads must call it.
template <int width, class T>
__device__ ExpSum<Accumulator<T>> exp_sum(const T* logits, std::int64_t cols) {
  using A = Accumulator<T>;
  ExpSum<A> own{-std::numeric_limits<A>::infinity(), 0};
  for (std::int64_t c = threadIdx.x * width; c < cols; c += loss_threads * width)
    add_pack(own, load<width>(logits + c));
  const A largest = join_block<loss_threads>(own.largest, Largest{});
  return {largest, join_block<loss_threads>(rescaled(own, largest), Sum{})};
}

/// Returns the term of a token in the z-loss.
template <class A>
__device__ A square_or_zero(A log_sum, std::int32_t target) {
  return target == no_target ? A{0} : log_sum * log_sum;
}

template <int width, class T>
__global__ void __launch_bounds__(loss_threads) cross_entropy_forward(CrossEntropyForward<T> loss, IndexCheck targets) {
  using A = Accumulator<T>;
  for (std::int64_t r = blockIdx.x; r < loss.logits.rows; r += gridDim.x) {
    const T* logits = loss.logits.row(r);
    const ExpSum<A> all = exp_sum<width>(logits, loss.logits.cols);
    if (threadIdx.x != 0) continue;
    const A nan = std::numeric_limits<A>::quiet_NaN();
    const A log_sum = std::isinf(all.largest) ? nan : all.largest + std::log(all.sum);
    loss.log_sum_exp[r] = log_sum;
    const std::int32_t target = loss.targets[r];
    if (target == no_target) {
      loss.loss[r] = 0;
    } else {
      loss.loss[r] = targets.passes(target) ? log_sum - widen(logits[target]) : nan;
    }
    if (!loss.squares.empty()) loss.squares[r] = square_or_zero(log_sum, target);
    if (!loss.largest.empty()) loss.largest[r] = all.largest;
  }
}

template <int width, class T>
__global__ void __launch_bounds__(loss_threads) part_statistics(CrossEntropyPart<T> part, IndexCheck targets) {
  using A = Accumulator<T>;
  for (std::int64_t r = blockIdx.x; r < part.logits.rows; r += gridDim.x) {
    const T* logits = part.logits.row(r);
    const ExpSum<A> all = exp_sum<width>(logits, part.logits.cols);
    if (threadIdx.x != 0) continue;
    const std::int64_t target = part.targets[r] - part.first;
    const bool here = targets.passes(part.targets[r]) && target >= 0 && target < part.logits.cols;
    A* statistics = part.statistics.row(r);
    statistics[0] = all.largest;
    statistics[1] = all.sum;
    statistics[2] = here ? widen(logits[target]) : A{0};
  }
}

template <class A>
__global__ void __launch_bounds__(loss_threads) join_parts(CrossEntropyJoin<A> join, std::int64_t rows) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * loss_threads + threadIdx.x;
  if (r >= rows) return;
  A largest = -std::numeric_limits<A>::infinity(), sum = 0, target = 0;
  for (std::int64_t p = r; p < join.statistics.rows; p += rows) largest = Largest{}(largest, join.statistics.row(p)[0]);
  for (std::int64_t p = r; p < join.statistics.rows; p += rows) {
    const A* statistics = join.statistics.row(p);
    sum += statistics[1] * std::exp(statistics[0] - largest);
    target += statistics[2];
  }
  join.log_sum_exp[r] = largest + std::log(sum);
  join.loss[r] = join.targets[r] == no_target ? A{0} : join.log_sum_exp[r] - target;
  if (!join.squares.empty()) join.squares[r] = square_or_zero(join.log_sum_exp[r], join.targets[r]);
  if (!join.largest.empty()) join.largest[r] = largest;
}

template <int width, class T>
__global__ void __launch_bounds__(loss_threads)
    cross_entropy_backward(CrossEntropyBackward<T> loss, IndexCheck targets) {
  using A = Accumulator<T>;
  const std::int64_t cols = loss.logits.cols;
  const A scale = loss.scale[0], z_scale = loss.z_scale.empty() ? A{0} : loss.z_scale[0];
  for (std::int64_t r = blockIdx.x; r < loss.logits.rows; r += gridDim.x) {
    if (threadIdx.x == 0) targets.passes(loss.targets[r]);
    const T* logits = loss.logits.row(r);
    T* d_logits = loss.d_logits.row(r);
    const A log_sum = loss.log_sum_exp[r], of_square = z_scale * (A{2} * log_sum), slope = scale + of_square;
    const bool counts = loss.targets[r] != no_target;
    const std::int64_t target = loss.targets[r] - loss.first;
    for (std::int64_t c = threadIdx.x * width; c < cols; c += loss_threads * width) {
      const auto values = load<width>(logits + c);
      Pack<T, width> result;
      for (int e = 0; e < width; ++e) {
        const A p = std::exp(widen(values[e]) - log_sum);
        const A gradient = c + e == target ? scale * (p - A{1}) + of_square * p : slope * p;
        result[e] = narrow<T>(counts ? gradient : A{0});
      }
      store(d_logits + c, result);
    }
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const CrossEntropyForward<T>& loss) {
  require_fitting(loss);
  const IndexCheck targets(stream, "CrossEntropyForward", "targets", no_target, loss.logits.cols);
  constexpr int width = pack_width<T>;
  start(stream, "CrossEntropyForward",
        fits_packs(loss.logits, width) ? cross_entropy_forward<width, T> : cross_entropy_forward<1, T>,
        blocks_for(loss.logits.rows), loss_threads, loss, targets);
}

template <class T>
void run(const CudaStream& stream, const CrossEntropyPart<T>& part) {
  require_fitting(part);
  const IndexCheck targets(stream, "CrossEntropyPart", "targets", no_target, part.vocab);
  constexpr int width = pack_width<T>;
  start(stream, "CrossEntropyPart", fits_packs(part.logits, width) ? part_statistics<width, T> : part_statistics<1, T>,
        blocks_for(part.logits.rows), loss_threads, part, targets);
}

template <class A>
void run(const CudaStream& stream, const CrossEntropyJoin<A>& join) {
  const std::int64_t rows = std::ssize(join.loss);
  require_fitting(join);
  start(stream, "CrossEntropyJoin", join_parts<A>, static_cast<unsigned>((rows + loss_threads - 1) / loss_threads),
        loss_threads, join, rows);
}

template <class T>
void run(const CudaStream& stream, const CrossEntropyBackward<T>& loss) {
  require_fitting(loss);
  const IndexCheck targets(stream, "CrossEntropyBackward", "targets", no_target, words_of(loss));
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(loss.logits, width) && fits_packs(loss.d_logits, width);
  start(stream, "CrossEntropyBackward", packed ? cross_entropy_backward<width, T> : cross_entropy_backward<1, T>,
        blocks_for(loss.logits.rows), loss_threads, loss, targets);
}

LYCEUM_CROSS_ENTROPY_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
