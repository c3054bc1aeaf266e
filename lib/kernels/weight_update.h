#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/flat_blocks.h"
#include "kernels/instances.h"

namespace lyceum {

/// The device's decision about a step, made from numbers that all ranks agree on. The host need not know it to launch
/// what follows.
struct StepVerdict {
  double gradient_scale;  // factor of every gradient: clipping
  double skip;            // not 0: weights and optimizer state stay as they are
};

/// skip = 1 if norm or loss is not finite or if no target counts, else 0;
/// gradient_scale = clip / norm if 0 < clip < norm, else 1.
struct JudgeStep {
  std::span<const double> norm, loss;   // [1]
  std::span<const double> loss_weight;  // [1]: weight of one target's loss; 0 if the batch has no target that counts
  double clip;                          // largest gradient norm; 0: no limit
  std::span<StepVerdict> verdict;       // [1]
};

/// A row of a table of flat tensors (see BlockWalk) that one update rule changes. T is the type of the weights that the
/// model reads, `states` the number of tensors that the rule keeps from step to step.
template <class T, std::size_t states>
struct UpdatedTensor {
  Accumulator<T>* master;                     // [count] f32 (f64) weights; may be `weight` if T is the same type
  std::array<Accumulator<T>*, states> state;  // [count] each
  const Accumulator<T>* gradient;             // [count]
  T* weight;                                  // [count]
  std::int64_t count, first_block;
  std::int64_t first_span;  // of this tensor in the list of decay spans
};

/// Consecutive elements of a tensor with the same weight decay: up to element `end`, from the end of the span before.
/// The last span of a tensor ends at the tensor's end or after it.
struct DecaySpan {
  std::int64_t end;
  double weight_decay;
};

/// Detects changes of an optimizer's memory by anything but an update: for each block of all tensors
///   Σ master + Σ_i state_factor(i) · Σ state_i + weight_factor · Σ weight
/// over the bits of the elements as 32-bit words, modulo 2³², as the last update left it; weight counts if it is stored
/// apart from master. A single word that changes always shows; changes of several may cancel out. An update reads and
/// writes this memory anyway, so the digests cost no traffic.
struct UpdateDigests {
  std::span<std::uint32_t> kept = {};     // [blocks of all tensors]; empty: not watched
  std::span<std::uint32_t> damaged = {};  // [1]: 0, or blocks − b for the first block b that differs from what was kept
};
constexpr std::uint32_t state_factor(std::size_t i) { return static_cast<std::uint32_t>(3 + 2 * i); }
inline constexpr std::uint32_t weight_factor = 15;

/// One step of an elementwise update rule over many flat tensors: for each element
///   update = rule(gradient · gradient_scale, states) + lr · weight_decay · master
///   master −= update;  weight = master rounded to T
/// In the same pass, for each block b of tensor t: sums[weight_places[t] + b] = Σ master² after the update, and
/// sums[update_places[t] + b] = Σ update², in double and in an order that depends only on the device and the decay
/// spans; not stored if the place is negative. A skipped step reads the masters only, and its update is 0. Any other
/// compares the digests with the memory that it finds and stores those of what it leaves.
/// Tables, places, numbers and verdict are in the memory of the stream's device.
///
/// A rule has `states` (a constant), `Element<A>` (a callable (A gradient, std::array<A, states>& state) → A update),
/// `element<A>()`, which makes one where the kernel runs, and `lr()`, likewise.
template <class T, class Rule>
struct UpdateWeights {
  std::span<const UpdatedTensor<T, Rule::states>> tensors;
  std::span<const DecaySpan> decay;
  std::int64_t blocks;  // of all tensors
  Rule rule;
  std::span<const StepVerdict> verdict;                        // [1]
  std::span<const std::int64_t> weight_places, update_places;  // [tensors]
  std::span<double> sums;
  UpdateDigests digests = {};
};

/// Stores the digests of the memory as it is (`renew`), or compares them with it, without an update.
template <class T, std::size_t states>
struct CheckDigests {
  std::span<const UpdatedTensor<T, states>> tensors;
  std::int64_t blocks;  // of all tensors
  UpdateDigests digests = {};
  bool renew;
};

template <class T, class Rule>
void run(const CpuStream& stream, const UpdateWeights<T, Rule>& update);
template <class T, std::size_t states>
void run(const CpuStream& stream, const CheckDigests<T, states>& check);
void run(const CpuStream& stream, const JudgeStep& judge);

template <class T, class Rule>
void run(const CudaStream& stream, const UpdateWeights<T, Rule>& update);
template <class T, std::size_t states>
void run(const CudaStream& stream, const CheckDigests<T, states>& check);
void run(const CudaStream& stream, const JudgeStep& judge);

#define LYCEUM_WEIGHT_UPDATE_KERNELS(INSTANCE) \
  INSTANCE(CheckDigests<float, 2>) INSTANCE(CheckDigests<bfloat16, 2>) INSTANCE(CheckDigests<double, 2>)
#define LYCEUM_UPDATE_RULE_KERNELS(INSTANCE, Rule) \
  INSTANCE(UpdateWeights<float, Rule>) INSTANCE(UpdateWeights<bfloat16, Rule>) INSTANCE(UpdateWeights<double, Rule>)

}  // namespace lyceum
