#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/rounding_numbers.h"
#include "kernels/cpu/squares.h"
#include "kernels/digest.h"
#include "kernels/weight_update.h"

namespace lyceum::weight_update {

/// Sums over the elements of a block. The digests exclude weights stored apart from the masters; weight_digest() has
/// those.
struct BlockSums {
  double weights = 0, updates = 0;    // sums of squares
  std::uint32_t found = 0, left = 0;  // digests of masters and states before and after the update
};

/// Returns a stored state in accumulator precision.
template <class A, class S>
[[gnu::always_inline]] inline A widen_state(S stored) {
  if constexpr (std::is_same_v<S, bfloat16>)
    return static_cast<A>(static_cast<float>(stored));
  else
    return stored;
}
/// The random numbers that round the states of elements of one block to bfloat16.
using RoundingNumbers = std::array<std::uint16_t, flat_block>;

/// Returns the digest of weights [first, first + count); 0 if weights and masters are the same memory.
template <class T, std::size_t states, class S>
std::uint32_t weight_digest(const UpdatedTensor<T, states, S>& tensor, std::int64_t first, std::int64_t count) {
  if (static_cast<const void*>(tensor.weight) == tensor.master) return 0;
  const T* const weight = tensor.weight + first;
  std::uint32_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += word_of(weight[i]);
  return weight_factor * sum;
}

/// The arrays of a range of elements that are updated with the same rule and decay, each indexed by the element's index
/// in the tensor, and the constants of its rule.
template <class T, class Rule, class S>
struct UpdatedRange {
  Accumulator<T>* master;
  std::array<S*, Rule::states> state;
  const Accumulator<T>* gradient;
  T* weight;
  typename Rule::template Element<Accumulator<T>> rule;
  Accumulator<T> gradient_scale, decay;  // decay: lr · weight decay
  Accumulator<T> factor;                 // of the updated weights, see HeadScaling
};

/// Updates element i and returns its contributions to the sums. `number` rounds its states if S is bfloat16. A separate
/// function that is inlined later, because GCC does not vectorize an omp simd loop whose body has local arrays.
template <class T, class Rule, class S>
[[gnu::always_inline]] inline BlockSums update_element(const UpdatedRange<T, Rule, S>& range, std::int64_t i,
                                                       [[maybe_unused]] std::uint32_t number) {
  using A = Accumulator<T>;
  std::array<A, Rule::states> state;
  for (std::size_t s = 0; s < Rule::states; ++s) state[s] = widen_state<A>(range.state[s][i]);
  const A before = range.master[i];
  std::uint32_t found = word_of(before), left = 0;
  for (std::size_t s = 0; s < Rule::states; ++s) found += state_factor(s) * word_of(range.state[s][i]);
  const A update = range.rule(range.gradient[i] * range.gradient_scale, state) + range.decay * before;
  const A after = (before - update) * range.factor;
  if constexpr (std::is_same_v<S, bfloat16>) {
    for (std::size_t s = 0; s < Rule::states; ++s) {
      if constexpr (Rule::changes_states) {
        const std::uint16_t bits = rounded_bits(static_cast<float>(state[s]), number_of_state(number, s));
        left += state_factor(s) * bits;
        range.state[s][i].bits = bits;
      } else {
        left += state_factor(s) * word_of(range.state[s][i]);
      }
    }
  } else {
    for (std::size_t s = 0; s < Rule::states; ++s) {
      range.state[s][i] = state[s];
      left += state_factor(s) * word_of(state[s]);
    }
  }
  range.master[i] = after;
  range.weight[i] = round_to<T>(after);
  return {.weights = static_cast<double>(after) * static_cast<double>(after),
          .updates = static_cast<double>(update) * static_cast<double>(update),
          .found = found,
          .left = left + word_of(after)};
}

/// Updates elements [first, last) of `whole`. `numbers`: those that round the states of these elements if S is
/// bfloat16, else null.
template <class T, class Rule, class S>
void update_range(const UpdatedRange<T, Rule, S>& whole, std::int64_t first, std::int64_t last,
                  [[maybe_unused]] const std::uint16_t* numbers, BlockSums& sums) {
  // A local copy, because the compiler then knows that no store in the loop changes it.
  const UpdatedRange<T, Rule, S> range = whole;
  double weights = 0, updates = 0;
  std::uint32_t found = 0, left = 0;
#pragma omp simd reduction(+ : weights, updates, found, left)
  for (std::int64_t i = first; i < last; ++i) {
    std::uint32_t number = 0;
    if constexpr (std::is_same_v<S, bfloat16> && Rule::changes_states) number = numbers[i - first];
    const BlockSums one = update_element<T, Rule, S>(range, i, number);
    weights += one.weights;
    updates += one.updates;
    found += one.found;
    left += one.left;
  }
  sums.weights += weights;
  sums.updates += updates;
  sums.found += found;
  sums.left += left;
}

/// Calls f(span, first, last) for each part of elements [first, last) of a tensor that belongs to one span.
template <class F>
void for_each_span(const UpdateSpan* span, std::int64_t first, std::int64_t last, const F& f) {
  for (; first < last; ++span) {
    const std::int64_t end = std::min(last, span->end);
    if (end <= first) continue;
    f(*span, first, end);
    first = end;
  }
}

/// Updates one block, elements [first, last) of a tensor, or only sums up its weights if the step is skipped.
template <class T, class Rule, class S>
BlockSums update_block(const UpdateWeights<T, Rule, S>& update, const UpdatedTensor<T, Rule::states, S>& tensor,
                       std::int64_t first, std::int64_t last) {
  using A = Accumulator<T>;
  BlockSums sums;
  [[maybe_unused]] RoundingNumbers numbers;
  if (update.verdict[0].skip != 0) {
    sums.weights = sum_of_squares(tensor.master + first, last - first);
    return sums;
  }
  const A gradient_scale = static_cast<A>(update.verdict[0].gradient_scale);
  for_each_span(update.spans.data() + tensor.first_span, first, last,
                [&](const UpdateSpan& span, std::int64_t begin, std::int64_t end) {
                  with_rule_of(span, update.rule, [&]<class Own>(const Own& rule) {
                    UpdatedRange<T, Own, S> range{.master = tensor.master,
                                                  .state = {},
                                                  .gradient = tensor.gradient,
                                                  .weight = tensor.weight,
                                                  .rule = rule.template element<A>(),
                                                  .gradient_scale = Own::scales_gradient ? gradient_scale : A{1},
                                                  .decay = static_cast<A>(rule.lr() * span.weight_decay),
                                                  .factor = 1};
                    for (std::size_t s = 0; s < Own::states; ++s) range.state[s] = state_of(tensor, span, s);
                    const std::uint16_t* rounding = nullptr;
                    if constexpr (std::is_same_v<S, bfloat16> && Own::changes_states) {
                      fill_rounding_numbers(update.rounding, tensor.first_slice, tensor.slices, begin, end,
                                            numbers.data());
                      rounding = numbers.data();
                    }
                    for (std::int64_t i = begin; i < end;) {
                      const ScaledPart part = scaled_part(span.heads, update.head_factors, i, end);
                      range.factor = static_cast<A>(part.factor);
                      update_range(range, i, part.end, rounding ? rounding + (i - begin) : nullptr, sums);
                      i = part.end;
                    }
                  });
                });
  return sums;
}

/// Records the block in digests.damaged unless its digest is the stored one. Several threads may call it concurrently.
inline void compare(const UpdateDigests& digests, std::int64_t block, std::uint32_t found) {
  if (digests.kept[static_cast<std::size_t>(block)] == found) return;
  const std::atomic_ref damaged(digests.damaged[0]);
  const auto own = static_cast<std::uint32_t>(std::ssize(digests.kept) - block);
  for (std::uint32_t before = damaged; own > before && !damaged.compare_exchange_weak(before, own);) {
  }
}

}  // namespace lyceum::weight_update

namespace lyceum {

template <class T, class Rule, class S>
void run(const CpuStream& stream, const UpdateWeights<T, Rule, S>& update) {
  require_length("UpdateWeights", "verdict", update.verdict, 1);
  if constexpr (std::is_same_v<S, bfloat16>) require_length("UpdateWeights", "update", update.rounding.update, 1);
  require_length("UpdateWeights", "weight_offsets", update.weight_offsets, std::ssize(update.tensors));
  require_length("UpdateWeights", "update_offsets", update.update_offsets, std::ssize(update.tensors));
  const bool watched = !update.digests.kept.empty() && update.verdict[0].skip == 0;
  if (watched) require_length("UpdateWeights", "digests.kept", update.digests.kept, update.blocks);
  parallel_for(stream, update.blocks, elements_per_thread / flat_block, [&](std::int64_t first, std::int64_t last) {
    BlockWalk walk(update.tensors, first);
    for (std::int64_t at = first; at < last; ++at, walk.next()) {
      const auto& tensor = walk.tensor();
      const std::int64_t begin = walk.block() * flat_block, end = std::min(begin + flat_block, tensor.count);
      const std::uint32_t weights = watched ? weight_update::weight_digest(tensor, begin, end - begin) : 0;
      const weight_update::BlockSums sums = weight_update::update_block(update, tensor, begin, end);
      if (watched) {
        weight_update::compare(update.digests, at, sums.found + weights);
        update.digests.kept[static_cast<std::size_t>(at)] =
            sums.left + weight_update::weight_digest(tensor, begin, end - begin);
      }
      const auto store = [&](std::int64_t offset, double sum) {
        if (offset >= 0) update.sums[static_cast<std::size_t>(offset + walk.block())] = sum;
      };
      store(update.weight_offsets[walk.row()], sums.weights);
      store(update.update_offsets[walk.row()], sums.updates);
    }
  });
}

}  // namespace lyceum
