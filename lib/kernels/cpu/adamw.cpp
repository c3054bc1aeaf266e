#include "kernels/adamw.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/squares.h"
#include "kernels/digest.h"

namespace lyceum {

namespace {

/// A step's constants, made in double and rounded once: 1 − β₂ has no bits to lose.
template <class A>
struct Constants {
  A beta1, rest1, beta2, rest2, eps, scale, rate, inverse_bias2;
  double lr;

  template <class T>
  explicit Constants(const AdamWStep<T>& step)
      : beta1(static_cast<A>(step.beta1)),
        rest1(static_cast<A>(1 - step.beta1)),
        beta2(static_cast<A>(step.beta2)),
        rest2(static_cast<A>(1 - step.beta2)),
        eps(static_cast<A>(step.eps)),
        scale(static_cast<A>(step.numbers[0].gradient_scale)),
        rate(static_cast<A>(step.numbers[0].rate)),
        inverse_bias2(static_cast<A>(step.numbers[0].inverse_bias2)),
        lr(step.numbers[0].lr) {}
};

/// Of a block: sums of squares, and the digests of what was there and is left, of weights that lie elsewhere aside.
struct Sums {
  double weights = 0, updates = 0;
  std::uint32_t found = 0, left = 0;
};

template <class T>
std::uint32_t sum_of_words(const T* x, std::int64_t count) {
  std::uint32_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += word_of(x[i]);
  return sum;
}

std::uint32_t digest_of(std::uint32_t master, std::uint32_t exp_avg, std::uint32_t exp_avg_sq) {
  return master + exp_avg_factor * exp_avg + exp_avg_sq_factor * exp_avg_sq;
}

/// Of `count` weights from element `first` on; 0 where they are the masters.
template <class T>
std::uint32_t weight_digest(const AdamWRow<T>& tensor, std::int64_t first, std::int64_t count) {
  if (static_cast<const void*>(tensor.weight) == tensor.master) return 0;
  return weight_factor * sum_of_words(tensor.weight + first, count);
}

/// Elements [first, last), of one decay.
template <class T>
void step_range(const AdamWRow<T>& tensor, const Constants<Accumulator<T>>& k, double weight_decay, std::int64_t first,
                std::int64_t last, Sums& sums) {
  using A = Accumulator<T>;
  A* master = tensor.master;
  A* exp_avg = tensor.exp_avg;
  A* exp_avg_sq = tensor.exp_avg_sq;
  const A* gradient = tensor.gradient;
  T* weight = tensor.weight;
  const A beta1 = k.beta1, rest1 = k.rest1, beta2 = k.beta2, rest2 = k.rest2, eps = k.eps;
  const A scale = k.scale, rate = k.rate, inverse_bias2 = k.inverse_bias2, decay = static_cast<A>(k.lr * weight_decay);
  double weights = 0, updates = 0;
  std::uint32_t found = 0, found_m = 0, found_v = 0, left = 0, left_m = 0, left_v = 0;  // words
#pragma omp simd reduction(+ : weights, updates, found, found_m, found_v, left, left_m, left_v)
  for (std::int64_t i = first; i < last; ++i) {
    found += word_of(master[i]);
    found_m += word_of(exp_avg[i]);
    found_v += word_of(exp_avg_sq[i]);
    const A g = gradient[i] * scale;
    const A m = beta1 * exp_avg[i] + rest1 * g;
    const A v = beta2 * exp_avg_sq[i] + rest2 * g * g;
    const A w = master[i];
    const A update = rate * m / (std::sqrt(v * inverse_bias2) + eps) + decay * w;
    const A updated = w - update;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = updated;
    weight[i] = round_to<T>(updated);
    weights += static_cast<double>(updated) * static_cast<double>(updated);
    updates += static_cast<double>(update) * static_cast<double>(update);
    left += word_of(updated);
    left_m += word_of(m);
    left_v += word_of(v);
  }
  sums.weights += weights;
  sums.updates += updates;
  sums.found += digest_of(found, found_m, found_v);
  sums.left += digest_of(left, left_m, left_v);
}

/// Elements [first, last), a block.
template <class T>
Sums step_block(const AdamWStep<T>& step, const AdamWRow<T>& tensor, const Constants<Accumulator<T>>& k,
                std::int64_t first, std::int64_t last) {
  Sums sums;
  if (step.numbers[0].skip != 0) {
    sums.weights = sum_of_squares(tensor.master + first, last - first);
    return sums;
  }
  for (const DecayRun* run = step.runs.data() + tensor.first_run; first < last; ++run) {
    const std::int64_t end = std::min(last, run->end);
    if (end <= first) continue;
    step_range(tensor, k, run->weight_decay, first, end, sums);
    first = end;
  }
  return sums;
}

/// Notes the block where its digest is not the one that was kept.
void compare(const AdamWDigests& digests, std::int64_t block, std::uint32_t found) {
  if (digests.kept[static_cast<std::size_t>(block)] == found) return;
  const std::atomic_ref damaged(digests.damaged[0]);
  const auto own = static_cast<std::uint32_t>(std::ssize(digests.kept) - block);
  for (std::uint32_t before = damaged; own > before && !damaged.compare_exchange_weak(before, own);) {
  }
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const AdamWCheck<T>& check) {
  require_length("AdamWCheck", "kept digests", check.digests.kept, check.blocks);
  parallel_for(stream, check.blocks, elements_a_thread / flat_block, [&](std::int64_t first, std::int64_t last) {
    BlockWalk walk(check.tensors, first);
    for (std::int64_t at = first; at < last; ++at, walk.next()) {
      const AdamWRow<T>& tensor = walk.tensor();
      const std::int64_t begin = walk.block() * flat_block, count = std::min(flat_block, tensor.count - begin);
      const std::uint32_t found =
          digest_of(sum_of_words(tensor.master + begin, count), sum_of_words(tensor.exp_avg + begin, count),
                    sum_of_words(tensor.exp_avg_sq + begin, count)) +
          weight_digest(tensor, begin, count);
      if (check.renew) {
        check.digests.kept[static_cast<std::size_t>(at)] = found;
      } else {
        compare(check.digests, at, found);
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const AdamWStep<T>& step) {
  require_length("AdamWStep", "numbers", step.numbers, 1);
  require_length("AdamWStep", "weight places", step.weight_places, std::ssize(step.tensors));
  require_length("AdamWStep", "update places", step.update_places, std::ssize(step.tensors));
  const Constants<Accumulator<T>> constants(step);
  const bool looks = !step.digests.kept.empty() && step.numbers[0].skip == 0;
  if (looks) require_length("AdamWStep", "kept digests", step.digests.kept, step.blocks);
  parallel_for(stream, step.blocks, elements_a_thread / flat_block, [&](std::int64_t first, std::int64_t last) {
    BlockWalk walk(step.tensors, first);
    for (std::int64_t at = first; at < last; ++at, walk.next()) {
      const AdamWRow<T>& tensor = walk.tensor();
      const std::int64_t begin = walk.block() * flat_block, end = std::min(begin + flat_block, tensor.count);
      const std::uint32_t weights = looks ? weight_digest(tensor, begin, end - begin) : 0;
      const Sums sums = step_block(step, tensor, constants, begin, end);
      if (looks) {
        compare(step.digests, at, sums.found + weights);
        step.digests.kept[static_cast<std::size_t>(at)] = sums.left + weight_digest(tensor, begin, end - begin);
      }
      const auto put = [&](std::int64_t place, double sum) {
        if (place >= 0) step.sums[static_cast<std::size_t>(place + walk.block())] = sum;
      };
      put(step.weight_places[walk.row()], sums.weights);
      put(step.update_places[walk.row()], sums.updates);
    }
  });
}

void run(const CpuStream&, const JudgeUpdate& judge) {
  require_length("JudgeUpdate", "norm", judge.norm, 1);
  require_length("JudgeUpdate", "loss", judge.loss, 1);
  require_length("JudgeUpdate", "loss_weight", judge.loss_weight, 1);
  require_length("JudgeUpdate", "numbers", judge.numbers, 1);
  const double norm = judge.norm[0];
  const bool updates = std::isfinite(norm) && std::isfinite(judge.loss[0]) && judge.loss_weight[0] > 0;
  judge.numbers[0].skip = updates ? 0 : 1;
  judge.numbers[0].gradient_scale = judge.clip > 0 && norm > judge.clip ? judge.clip / norm : 1;
}

template void run(const CpuStream&, const AdamWStep<float>&);
template void run(const CpuStream&, const AdamWStep<bfloat16>&);
template void run(const CpuStream&, const AdamWStep<double>&);
template void run(const CpuStream&, const AdamWCheck<float>&);
template void run(const CpuStream&, const AdamWCheck<bfloat16>&);
template void run(const CpuStream&, const AdamWCheck<double>&);

}  // namespace lyceum
