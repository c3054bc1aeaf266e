#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/digest.h"
#include "kernels/weight_update.h"

namespace lyceum::weight_update {

/// In every kernel of these tables, a thread has `width` consecutive elements.
constexpr int width = 4;
/// Threads of the kernels in which a thread block processes one block (flat_block elements) of a tensor at a time.
constexpr int block_threads = flat_block / width;
/// In update_tensors(), each of `warps` warps of a thread block processes one block of a tensor at a time, `stride`
/// elements in each step.
constexpr int warps = 8, threads = warps * warp_size, stride = width * warp_size;
static_assert(flat_block % stride == 0);

/// One thread's sums over its elements: Σ weights², Σ updates², and the digests of the memory before (found) and after
/// (left) the update.
struct ThreadSums {
  double weights, updates;
  std::uint32_t found, left;
};

/// Returns a state rounded to its stored type, with `number` if that is bfloat16.
template <class S, class A>
__device__ S round_state(A value, std::uint32_t number) {
  if constexpr (std::is_same_v<S, bfloat16>) {
    bfloat16 rounded;
    rounded.bits = rounded_bits(static_cast<float>(value), number);
    return rounded;
  } else {
    return value;
  }
}

/// Returns the numbers that round the states of elements [i, i + count) of a tensor.
template <int count, class T, std::size_t states, class S>
__device__ std::array<std::uint32_t, count> rounding_numbers(const StateRounding& rounding,
                                                             const UpdatedTensor<T, states, S>& tensor,
                                                             std::int64_t i) {
  const RoundedSlice* const slices = rounding.slices.data() + tensor.first_slice;
  const auto update = static_cast<std::uint64_t>(rounding.update[0]);
  std::int64_t at = slice_of(slices, tensor.slices, i);
  std::array<std::uint32_t, count> numbers{};
  std::array<std::uint32_t, 4> block{};
  std::uint64_t block_number = 0;
  for (int e = 0; e < count; ++e) {
    bool fresh = e == 0;
    while (at + 1 < tensor.slices && slices[at].end <= i + e) {
      ++at;
      fresh = true;
    }
    const std::uint64_t element = slices[at].element(i + e);
    if (const std::uint64_t own = element / elements_per_random_block; fresh || own != block_number) {
      block_number = own;
      block = rounding_block(slices[at].key, update, own);
    }
    numbers[static_cast<std::size_t>(e)] = rounding_number(block, element);
  }
  return numbers;
}

/// True if the model's weight is stored separately from the master weight.
template <class T, std::size_t states, class S>
__device__ bool weight_is_apart(const UpdatedTensor<T, states, S>& tensor) {
  return static_cast<const void*>(tensor.weight) != tensor.master;
}

/// Constants that are the same for all elements of a launch.
template <class A>
struct Constants {
  A gradient_scale;
  bool watched;
  std::span<const double> head_factors;
};

/// The memory and the constants of a span. They are read once per block of elements: the compiler would read the tables
/// again after each store.
template <class T, class Rule, class S>
struct OpenSpan {
  using A = Accumulator<T>;

  const A* gradient;
  A* master;
  std::array<S*, Rule::states> state;
  T* weight;
  typename Rule::template Element<A> element;
  A scale, decay;
  bool reads_weights;  // the digests depend on the model's weights
  bool scales;         // UpdateSpan::heads scales some weights

  template <std::size_t most_states>
  __device__ OpenSpan(const UpdatedTensor<T, most_states, S>& tensor, const UpdateSpan& span, const Rule& rule,
                      const Constants<A>& k)
      : gradient(tensor.gradient),
        master(tensor.master),
        weight(tensor.weight),
        element(rule.template element<A>()),
        scale(Rule::scales_gradient ? k.gradient_scale : A{1}),
        decay(static_cast<A>(rule.lr() * span.weight_decay)),
        reads_weights(k.watched && weight_is_apart(tensor)),
        scales(span.heads.period > 0) {
    for (std::size_t s = 0; s < Rule::states; ++s) state[s] = state_of(tensor, span, s);
  }
};

/// The values of `count` consecutive elements before their update.
template <int count, class T, std::size_t states, class S>
struct LoadedPack {
  Pack<Accumulator<T>, count> gradient, master;
  std::array<Pack<S, count>, states> state;
  Pack<T, count> weight;  // not loaded if nothing depends on it
};

/// Loads `count` consecutive elements of a span, from element i on.
template <int count, class T, class Rule, class S>
__device__ LoadedPack<count, T, Rule::states, S> load_pack(const OpenSpan<T, Rule, S>& open, std::int64_t i) {
  LoadedPack<count, T, Rule::states, S> pack;
  pack.gradient = load<count>(open.gradient + i);
  pack.master = load<count>(open.master + i);
  for (std::size_t s = 0; s < Rule::states; ++s) pack.state[s] = load<count>(open.state[s] + i);
  if (open.reads_weights) pack.weight = load<count>(open.weight + i);
  return pack;
}

/// Updates `count` consecutive elements of a span, from element i on, which load_pack() has loaded.
template <int count, class T, class Rule, std::size_t most_states, class S>
__device__ void update_pack(const OpenSpan<T, Rule, S>& open, const UpdatedTensor<T, most_states, S>& tensor,
                            const UpdateSpan& span, const StateRounding& rounding, const Constants<Accumulator<T>>& k,
                            std::int64_t i, LoadedPack<count, T, Rule::states, S> pack, ThreadSums& sums) {
  using A = Accumulator<T>;
  constexpr bool rounds = std::is_same_v<S, bfloat16> && Rule::changes_states;
  auto& [gradient, master, states, weight] = pack;
  std::array<std::uint32_t, count> numbers{};
  if constexpr (rounds) numbers = rounding_numbers<count>(rounding, tensor, i);
  for (int e = 0; e < count; ++e) {
    std::array<A, Rule::states> state;
    const A before = master[e];
    sums.found += word_of(before);
    for (std::size_t s = 0; s < Rule::states; ++s) {
      state[s] = static_cast<A>(widen(states[s][e]));
      sums.found += state_factor(s) * word_of(states[s][e]);
    }
    if (open.reads_weights) sums.found += weight_factor * word_of(weight[e]);
    const A update = open.element(gradient[e] * open.scale, state) + open.decay * before;
    master[e] = before - update;
    if (open.scales) {
      master[e] *= static_cast<A>(scaled_part(span.heads, k.head_factors, i + e, i + e + 1).factor);
    }
    sums.left += word_of(master[e]);
    for (std::size_t s = 0; s < Rule::states; ++s) {
      if constexpr (Rule::changes_states) {
        states[s][e] = round_state<S>(state[s], number_of_state(numbers[static_cast<std::size_t>(e)], s));
      }
      sums.left += state_factor(s) * word_of(states[s][e]);
    }
    weight[e] = narrow<T>(master[e]);
    if (open.reads_weights) sums.left += weight_factor * word_of(weight[e]);
    sums.weights += static_cast<double>(master[e]) * static_cast<double>(master[e]);
    sums.updates += static_cast<double>(update) * static_cast<double>(update);
  }
  for (std::size_t s = 0; s < Rule::states; ++s) store(open.state[s] + i, states[s]);
  store(open.master + i, master);
  store(open.weight + i, weight);
}

/// True if all memory of the tensor that the span's elements need is aligned for packs of `width` elements.
template <class T, std::size_t most_states, class S>
__device__ bool is_packed(const UpdatedTensor<T, most_states, S>& tensor, const UpdateSpan& span, std::size_t states) {
  constexpr std::uintptr_t state_bytes = width * sizeof(S) < 16 ? width * sizeof(S) : 16;
  bool aligned = is_aligned(tensor.master) && is_aligned(tensor.gradient) && is_aligned(tensor.weight);
  for (std::size_t s = 0; s < states; ++s) aligned = aligned && is_aligned(state_of(tensor, span, s), state_bytes);
  return aligned;
}

/// Updates a whole block of a span, from element i of this lane on, in packs. Issues the loads of the next pack before
/// it updates the current one, so that memory latency overlaps with the update.
template <class T, class Rule, std::size_t most_states, class S>
__device__ void update_whole_block(const UpdatedTensor<T, most_states, S>& tensor, const UpdateSpan& span,
                                   const Rule& rule, const StateRounding& rounding, const Constants<Accumulator<T>>& k,
                                   std::int64_t i, ThreadSums& sums) {
  const OpenSpan<T, Rule, S> open(tensor, span, rule, k);
  auto next = load_pack<width>(open, i);
#pragma unroll 1
  for (int step = 0; step < flat_block / stride; ++step, i += stride) {
    const auto pack = next;
    if (step + 1 < flat_block / stride) next = load_pack<width>(open, i + stride);
    update_pack<width>(open, tensor, span, rounding, k, i, pack, sums);
  }
}

/// Updates `count` consecutive elements of a span, from element i on.
template <int count, class T, class Rule, class S>
__device__ void update_at(const UpdateWeights<T, Rule, S>& update, const UpdatedTensor<T, Rule::states, S>& tensor,
                          const Constants<Accumulator<T>>& k, const UpdateSpan& span, std::int64_t i,
                          ThreadSums& sums) {
  with_rule_of(span, update.rule, [&]<class Own>(const Own& rule) {
    const OpenSpan<T, Own, S> open(tensor, span, rule, k);
    update_pack<count>(open, tensor, span, update.rounding, k, i, load_pack<count>(open, i), sums);
  });
}

/// Updates one lane's elements of a block that is not whole, or has several spans or memory that is not aligned. Packs
/// in one span with aligned memory are updated together, others element by element.
template <class T, class Rule, class S>
__device__ void update_elements(const UpdateWeights<T, Rule, S>& update,
                                const UpdatedTensor<T, Rule::states, S>& tensor, const Constants<Accumulator<T>>& k,
                                const UpdateSpan* span, std::int64_t first, std::int64_t last, ThreadSums& sums) {
  for (std::int64_t begin = first; begin < last; begin += stride) {
    while (span->end <= begin) ++span;
    const std::int64_t end = begin + width;
    bool packed = false;
    if (end <= last && end <= span->end) {
      with_rule_of(*span, update.rule, [&]<class Own>(const Own&) { packed = is_packed(tensor, *span, Own::states); });
    }
    if (packed) {
      update_at<width>(update, tensor, k, *span, begin, sums);
      continue;
    }
    for (std::int64_t i = begin; i < end && i < last; ++i) {
      while (span->end <= i) ++span;
      update_at<1>(update, tensor, k, *span, i, sums);
    }
  }
}

/// Updates one lane's elements of a block, which begins at element `begin` of its tensor. Which lane has which
/// elements, and the order of its sums, do not depend on spans or alignment.
template <class T, class Rule, class S>
__device__ ThreadSums update_block(const UpdateWeights<T, Rule, S>& update,
                                   const UpdatedTensor<T, Rule::states, S>& tensor, const Constants<Accumulator<T>>& k,
                                   std::int64_t begin) {
  ThreadSums sums{};
  const std::int64_t end = begin + flat_block, first = begin + threadIdx.x % warp_size * width;
  const UpdateSpan* span = update.spans.data() + tensor.first_span;
  while (span->end <= begin) ++span;
  bool whole = end <= tensor.count && end <= span->end;
  with_rule_of(*span, update.rule, [&]<class Own>(const Own& rule) {
    whole = whole && is_packed(tensor, *span, Own::states);
    if (whole) update_whole_block(tensor, *span, rule, update.rounding, k, first, sums);
  });
  if (!whole) update_elements(update, tensor, k, span, first, end < tensor.count ? end : tensor.count, sums);
  return sums;
}

/// Returns a lane's sums of a block in a skipped step: only Σ master².
template <class T, std::size_t states, class S>
__device__ ThreadSums skip_block(const UpdatedTensor<T, states, S>& tensor, std::int64_t begin) {
  ThreadSums sums{};
  const std::int64_t end = begin + flat_block < tensor.count ? begin + flat_block : tensor.count;
  for (std::int64_t first = begin + threadIdx.x % warp_size * width; first < end; first += stride) {
    for (std::int64_t i = first; i < first + width && i < end; ++i) {
      sums.weights += static_cast<double>(tensor.master[i]) * static_cast<double>(tensor.master[i]);
    }
  }
  return sums;
}

/// Records the block as damaged if `found` differs from its kept digest. One thread calls it.
__device__ inline void compare(const UpdateDigests& digests, std::int64_t block, std::uint32_t found) {
  if (digests.kept[block] == found) return;
  atomicMax(digests.damaged.data(),
            static_cast<std::uint32_t>(digests.kept.size()) - static_cast<std::uint32_t>(block));
}

/// Updates all tensors, or only sums Σ master² if the verdict is to skip the step. Each thread block has a contiguous
/// range of blocks of the tensors, which its warps take in turns. Warps never wait for each other.
template <class T, class Rule, class S>
__global__ void __launch_bounds__(threads) update_tensors(UpdateWeights<T, Rule, S> update) {
  using A = Accumulator<T>;
  const StepVerdict verdict = update.verdict[0];
  const bool skip = verdict.skip != 0;
  const Constants<A> k{.gradient_scale = static_cast<A>(verdict.gradient_scale),
                       .watched = !skip && !update.digests.kept.empty(),
                       .head_factors = update.head_factors};
  const std::int64_t first = update.blocks * blockIdx.x / gridDim.x + threadIdx.x / warp_size,
                     last = update.blocks * (blockIdx.x + 1) / gridDim.x;
  if (first >= last) return;
  BlockWalk<UpdatedTensor<T, Rule::states, S>> walk(update.tensors, first);
  for (std::int64_t at = first; at < last; at += warps, walk.next(warps)) {
    const std::int64_t begin = walk.block() * flat_block;
    const ThreadSums own = skip ? skip_block(walk.tensor(), begin) : update_block(update, walk.tensor(), k, begin);
    const ThreadSums sums{.weights = join_warp(own.weights, Sum{}),
                          .updates = join_warp(own.updates, Sum{}),
                          .found = join_warp(own.found, Sum{}),
                          .left = join_warp(own.left, Sum{})};
    if (threadIdx.x % warp_size != 0) continue;
    const std::int64_t weights = update.weight_offsets[walk.row()], updates = update.update_offsets[walk.row()];
    if (weights >= 0) update.sums[weights + walk.block()] = sums.weights;
    if (updates >= 0) update.sums[updates + walk.block()] = sums.updates;
    if (!k.watched) continue;
    compare(update.digests, at, sums.found);
    update.digests.kept[at] = sums.left;
  }
}

/// Returns the number of thread blocks of kernels in which a thread block processes one block of a tensor at a time.
/// More thread blocks than run at a time finish at about the same time; each processes a contiguous range of blocks and
/// therefore searches the table only once.
inline unsigned grid_of(const CudaStream& stream, std::int64_t blocks) {
  return static_cast<unsigned>(std::min<std::int64_t>(std::int64_t{stream.processors()} * 32, blocks));
}

/// Returns the number of thread blocks of update_tensors(): as grid_of(), but all warps have work, unless there are so
/// few blocks that some multiprocessors would have none.
inline unsigned grid_of_warps(const CudaStream& stream, std::int64_t blocks) {
  const std::int64_t fewest = std::min<std::int64_t>(stream.processors(), blocks);
  return grid_of(stream, std::max(fewest, (blocks + warps - 1) / warps));
}

}  // namespace lyceum::weight_update

namespace lyceum {

template <class T, class Rule, class S>
void run(const CudaStream& stream, const UpdateWeights<T, Rule, S>& update) {
  const auto tensors = static_cast<std::int64_t>(update.tensors.size());
  require_length("UpdateWeights", "verdict", update.verdict, 1);
  require_length("UpdateWeights", "weight_offsets", update.weight_offsets, tensors);
  require_length("UpdateWeights", "update_offsets", update.update_offsets, tensors);
  if constexpr (std::is_same_v<S, bfloat16>) require_length("UpdateWeights", "update", update.rounding.update, 1);
  if (!update.digests.kept.empty()) {
    require_length("UpdateWeights", "digests.kept", update.digests.kept, update.blocks);
  }
  start(stream, "UpdateWeights", weight_update::update_tensors<T, Rule, S>,
        weight_update::grid_of_warps(stream, update.blocks), weight_update::threads, update);
}

}  // namespace lyceum
