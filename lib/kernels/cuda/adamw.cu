#include "kernels/adamw.h"
#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/digest.h"

namespace lyceum {

namespace {

/// A block of threads takes a block of the tensors at a time, `width` neighbours a thread.
constexpr int adamw_width = 4, adamw_threads = flat_block / adamw_width;

/// A step's constants, made in double and rounded once: 1 − β₂ has no bits to lose.
template <class A>
struct Constants {
  A beta1, rest1, beta2, rest2, eps;
};
template <class A>
struct Numbers {
  A scale, rate, inverse_bias2;
  double lr;
  __device__ explicit Numbers(const AdamWNumbers& numbers)
      : scale(static_cast<A>(numbers.gradient_scale)),
        rate(static_cast<A>(numbers.rate)),
        inverse_bias2(static_cast<A>(numbers.inverse_bias2)),
        lr(numbers.lr) {}
};

/// Of a thread's elements: sums of squares, and the digests of what was there and is left.
struct Sums {
  double weights = 0, updates = 0;
  std::uint32_t found = 0, left = 0;
};

template <class A>
__device__ std::uint32_t digest_of(A master, A exp_avg, A exp_avg_sq) {
  return word_of(master) + exp_avg_factor * word_of(exp_avg) + exp_avg_sq_factor * word_of(exp_avg_sq);
}

/// `count` neighbours from element i on, of one decay. `looks`: digests are wanted, of weights that lie elsewhere too.
template <int count, class T>
__device__ void step_pack(const AdamWRow<T>& tensor, const Constants<Accumulator<T>>& k,
                          const Numbers<Accumulator<T>>& n, double weight_decay, bool looks, std::int64_t i,
                          Sums& sums) {
  using A = Accumulator<T>;
  const auto decay = static_cast<A>(n.lr * weight_decay);
  const auto gradient = load<count>(tensor.gradient + i);
  auto exp_avg = load<count>(tensor.exp_avg + i), exp_avg_sq = load<count>(tensor.exp_avg_sq + i),
       master = load<count>(tensor.master + i);
  const bool apart = looks && static_cast<const void*>(tensor.weight) != tensor.master;
  Pack<T, count> weight{};
  if (apart) weight = load<count>(tensor.weight + i);
  for (int e = 0; e < count; ++e) {
    sums.found += digest_of(master[e], exp_avg[e], exp_avg_sq[e]);
    if (apart) sums.found += weight_factor * word_of(weight[e]);
    const A g = gradient[e] * n.scale;
    const A m = k.beta1 * exp_avg[e] + k.rest1 * g;
    const A v = k.beta2 * exp_avg_sq[e] + k.rest2 * g * g;
    const A w = master[e];
    const A update = n.rate * m / (std::sqrt(v * n.inverse_bias2) + k.eps) + decay * w;
    exp_avg[e] = m;
    exp_avg_sq[e] = v;
    master[e] = w - update;
    weight[e] = narrow<T>(master[e]);
    sums.left += digest_of(master[e], m, v);
    if (apart) sums.left += weight_factor * word_of(weight[e]);
    sums.weights += static_cast<double>(master[e]) * static_cast<double>(master[e]);
    sums.updates += static_cast<double>(update) * static_cast<double>(update);
  }
  store(tensor.exp_avg + i, exp_avg);
  store(tensor.exp_avg_sq + i, exp_avg_sq);
  store(tensor.master + i, master);
  store(tensor.weight + i, weight);
}

template <class T>
__device__ bool packed(const AdamWRow<T>& tensor) {
  return is_aligned(tensor.master) && is_aligned(tensor.exp_avg) && is_aligned(tensor.exp_avg_sq) &&
         is_aligned(tensor.gradient) && is_aligned(tensor.weight);
}

/// A thread's neighbours from element i on, up to the end of the tensor. Which thread takes which does not depend on
/// how they are read.
template <class T>
__device__ Sums step_neighbours(const AdamWStep<T>& step, const AdamWRow<T>& tensor, const Constants<Accumulator<T>>& k,
                                const Numbers<Accumulator<T>>& n, std::int64_t i) {
  Sums sums;
  if (i >= tensor.count) return sums;
  const bool looks = !step.digests.kept.empty();
  const DecayRun* run = step.runs.data() + tensor.first_run;
  while (run->end <= i) ++run;
  if (i + adamw_width <= tensor.count && i + adamw_width <= run->end && packed(tensor)) {
    step_pack<adamw_width>(tensor, k, n, run->weight_decay, looks, i, sums);
    return sums;
  }
  for (int e = 0; e < adamw_width && i + e < tensor.count; ++e) {
    while (run->end <= i + e) ++run;
    step_pack<1>(tensor, k, n, run->weight_decay, looks, i + e, sums);
  }
  return sums;
}

/// The same of a step that is left out.
template <class T>
__device__ Sums keep_neighbours(const AdamWRow<T>& tensor, std::int64_t i) {
  Sums sums;
  for (int e = 0; e < adamw_width && i + e < tensor.count; ++e) {
    sums.weights += static_cast<double>(tensor.master[i + e]) * static_cast<double>(tensor.master[i + e]);
  }
  return sums;
}

/// For one thread of a block: notes it where its digest is not the one that was kept.
__device__ void compare(const AdamWDigests& digests, std::int64_t block, std::uint32_t found) {
  if (digests.kept[block] == found) return;
  atomicMax(digests.damaged.data(),
            static_cast<std::uint32_t>(digests.kept.size()) - static_cast<std::uint32_t>(block));
}

template <class T>
__global__ void __launch_bounds__(adamw_threads) check_tensors(AdamWCheck<T> check) {
  const std::int64_t first = check.blocks * blockIdx.x / gridDim.x, last = check.blocks * (blockIdx.x + 1) / gridDim.x;
  BlockWalk<AdamWRow<T>> walk(check.tensors, first);
  for (std::int64_t at = first; at < last; ++at, walk.next()) {
    const AdamWRow<T>& tensor = walk.tensor();
    const std::int64_t i = walk.block() * flat_block + threadIdx.x * adamw_width;
    std::uint32_t own = 0;
    for (int e = 0; e < adamw_width && i + e < tensor.count; ++e) {
      own += digest_of(tensor.master[i + e], tensor.exp_avg[i + e], tensor.exp_avg_sq[i + e]);
      if (static_cast<const void*>(tensor.weight) != tensor.master)
        own += weight_factor * word_of(tensor.weight[i + e]);
    }
    const std::uint32_t found = join_block<adamw_threads>(own, Sum{});
    if (threadIdx.x != 0) continue;
    if (check.renew) {
      check.digests.kept[at] = found;
    } else {
      compare(check.digests, at, found);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(adamw_threads) step_tensors(AdamWStep<T> step, Constants<Accumulator<T>> constants) {
  const Numbers<Accumulator<T>> numbers(step.numbers[0]);
  const bool skip = step.numbers[0].skip != 0, looks = !skip && !step.digests.kept.empty();
  const std::int64_t first = step.blocks * blockIdx.x / gridDim.x, last = step.blocks * (blockIdx.x + 1) / gridDim.x;
  BlockWalk<AdamWRow<T>> walk(step.tensors, first);
  for (std::int64_t at = first; at < last; ++at, walk.next()) {
    const std::int64_t i = walk.block() * flat_block + threadIdx.x * adamw_width;
    const Sums own =
        skip ? keep_neighbours(walk.tensor(), i) : step_neighbours(step, walk.tensor(), constants, numbers, i);
    const std::int64_t weights = step.weight_places[walk.row()], updates = step.update_places[walk.row()];
    if (weights >= 0) {
      const double sum = join_block<adamw_threads>(own.weights, Sum{});
      if (threadIdx.x == 0) step.sums[weights + walk.block()] = sum;
    }
    if (updates >= 0) {
      const double sum = join_block<adamw_threads>(own.updates, Sum{});
      if (threadIdx.x == 0) step.sums[updates + walk.block()] = sum;
    }
    if (looks) {
      const std::uint32_t found = join_block<adamw_threads>(own.found, Sum{});
      const std::uint32_t left = join_block<adamw_threads>(own.left, Sum{});
      if (threadIdx.x != 0) continue;
      compare(step.digests, at, found);
      step.digests.kept[at] = left;
    }
  }
}

__global__ void judge_update(JudgeUpdate judge) {
  const double norm = judge.norm[0];
  const bool updates = std::isfinite(norm) && std::isfinite(judge.loss[0]) && judge.loss_weight[0] > 0;
  judge.numbers[0].skip = updates ? 0 : 1;
  judge.numbers[0].gradient_scale = judge.clip > 0 && norm > judge.clip ? judge.clip / norm : 1;
}

/// More than run at a time, so that they end together, each with neighbours to walk: it searches the table once.
unsigned grid_of(const CudaStream& stream, std::int64_t blocks) {
  return static_cast<unsigned>(std::min<std::int64_t>(std::int64_t{stream.processors()} * 32, blocks));
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const AdamWStep<T>& step) {
  using A = Accumulator<T>;
  const auto tensors = static_cast<std::int64_t>(step.tensors.size());
  require_length("AdamWStep", "numbers", step.numbers, 1);
  require_length("AdamWStep", "weight places", step.weight_places, tensors);
  require_length("AdamWStep", "update places", step.update_places, tensors);
  const Constants<A> constants{.beta1 = static_cast<A>(step.beta1),
                               .rest1 = static_cast<A>(1 - step.beta1),
                               .beta2 = static_cast<A>(step.beta2),
                               .rest2 = static_cast<A>(1 - step.beta2),
                               .eps = static_cast<A>(step.eps)};
  if (!step.digests.kept.empty()) require_length("AdamWStep", "kept digests", step.digests.kept, step.blocks);
  start(stream, "AdamWStep", step_tensors<T>, grid_of(stream, step.blocks), adamw_threads, step, constants);
}

template <class T>
void run(const CudaStream& stream, const AdamWCheck<T>& check) {
  require_length("AdamWCheck", "kept digests", check.digests.kept, check.blocks);
  start(stream, "AdamWCheck", check_tensors<T>, grid_of(stream, check.blocks), adamw_threads, check);
}

void run(const CudaStream& stream, const JudgeUpdate& judge) {
  require_length("JudgeUpdate", "norm", judge.norm, 1);
  require_length("JudgeUpdate", "loss", judge.loss, 1);
  require_length("JudgeUpdate", "loss_weight", judge.loss_weight, 1);
  require_length("JudgeUpdate", "numbers", judge.numbers, 1);
  start(stream, "JudgeUpdate", judge_update, 1, 1, judge);
}

template void run(const CudaStream&, const AdamWStep<float>&);
template void run(const CudaStream&, const AdamWStep<bfloat16>&);
template void run(const CudaStream&, const AdamWStep<double>&);
template void run(const CudaStream&, const AdamWCheck<float>&);
template void run(const CudaStream&, const AdamWCheck<bfloat16>&);
template void run(const CudaStream&, const AdamWCheck<double>&);

}  // namespace lyceum
