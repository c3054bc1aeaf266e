#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/cuda/host_device.h"
#include "kernels/flat_blocks.h"
#include "kernels/head_scaling.h"
#include "kernels/instances.h"
#include "kernels/stochastic_rounding.h"

namespace lyceum {

/// The decision about a step: how gradients are scaled and whether the update is skipped. It is computed on the device
/// from numbers that are equal on all ranks, so the host can launch the update without waiting for it.
struct StepVerdict {
  static constexpr double unsound = 1, outlier = 2;  // the values of `skip` other than 0, see JudgeStep
  double gradient_scale;                             // factor of every gradient (clipping)
  double skip;                                       // if not 0, weights and optimizer state stay unchanged
};

/// Computes the StepVerdict of a step: skip = unsound if norm or loss is not finite or loss_weight is not positive,
/// else outlier if loss or norm is above its limit, else 0; gradient_scale = clip / norm if 0 < clip < norm, else 1.
struct JudgeStep {
  std::span<const double> norm, loss;   // [1]: gradient norm and loss of the whole batch
  std::span<const double> loss_weight;  // [1]: weight of one target's loss; 0 if the batch has no target with a loss
  std::span<const double> limits;       // [2]: largest loss and largest norm of a step that updates; may be infinite
  double clip;                          // largest gradient norm; 0: no limit
  std::span<StepVerdict> verdict;       // [1]
};

/// One tensor in the table of flat tensors (see BlockWalk) that UpdateWeights updates. T is the type of the weights
/// that the model reads. `states` is the largest number of states that a rule keeps per element (2 for AdamW: m and v).
/// S is the type of the states: accumulator precision, or bfloat16 with stochastic rounding.
template <class T, std::size_t states, class S = Accumulator<T>>
struct UpdatedTensor {
  Accumulator<T>* master;  // [count]: f32 (f64) weights; may be `weight` if T is the same type
  /// state[0] has one element per element of the tensor. state[s] has one per element whose rule keeps more than s
  /// states, in order; see UpdateSpan::without.
  std::array<S*, states> state;
  Accumulator<T>* gradient;                  // [count]
  T* weight;                                 // [count]
  std::int64_t count, first_block;           // elements; index of the first block among the blocks of all tensors
  std::int64_t first_span;                   // index of the tensor's first span among the spans of all tensors
  std::int64_t first_slice = 0, slices = 0;  // the tensor's slices among StateRounding::slices; used if S is bfloat16
};

/// A range of elements of a tensor with the same rule and weight decay. It begins where the tensor's previous span ends
/// (at 0 for the first one) and ends before element `end`. The last span of a tensor ends at the tensor's end or after
/// it.
struct UpdateSpan {
  std::int64_t end;
  double weight_decay;
  std::int32_t rule = 0;    // index of the rule in EitherRule; 0 if all elements have one rule
  std::int32_t states = 2;  // states that the rule keeps per element
  /// Number of elements of the tensor before the span that have only one state. The other states of element i of the
  /// tensor are therefore at state[s][i − without].
  std::int64_t without = 0;
  HeadScaling heads = {};
};

/// Returns a pointer to state `s` for the elements of a span, indexed by their index i in the tensor.
template <class T, std::size_t states, class S>
LYCEUM_HOST_DEVICE S* state_of(const UpdatedTensor<T, states, S>& tensor, const UpdateSpan& span, std::size_t s) {
  return tensor.state[s] - (s > 0 ? span.without : 0);
}

/// Checksums that reveal a change of weights or optimizer state between two updates, such as a memory fault. The digest
/// of a block (flat_block elements of one tensor) is
///   Σ master + Σ_i state_factor(i) · Σ state_i + weight_factor · Σ weight   (modulo 2³²)
/// over the bits of the elements as 32-bit words, after the last update. The term of `weight` is omitted if weight and
/// master are the same memory. A change of a single word always changes the digest; changes of several words may cancel
/// out. The update reads and writes this memory in any case, so digests cause no additional memory traffic.
struct UpdateDigests {
  std::span<std::uint32_t> kept = {};  // [blocks of all tensors]: digests after the last update; empty: no checks
  /// [1]: 0, or blocks − b for the first block b that was found changed. Kernels only increase it; the caller sets it
  /// to 0.
  std::span<std::uint32_t> damaged = {};
};
/// The factors of UpdateDigests. They are odd, so a changed word always changes the digest, and distinct, so a word
/// that moves to another array changes it as well.
constexpr std::uint32_t state_factor(std::size_t i) { return static_cast<std::uint32_t>(3 + 2 * i); }
inline constexpr std::uint32_t weight_factor = 15;

/// Two rules for the elements of one launch: UpdateSpan::rule selects the first (0) or the second (1) for each span.
template <class First, class Second>
struct EitherRule {
  static constexpr std::size_t states = std::max(First::states, Second::states);
  First first;
  Second second;
};
/// Calls f(rule) with the rule of a span.
template <class Rule, class F>
LYCEUM_HOST_DEVICE void with_rule_of(const UpdateSpan&, const Rule& rule, const F& f) {
  f(rule);
}
template <class First, class Second, class F>
LYCEUM_HOST_DEVICE void with_rule_of(const UpdateSpan& span, const EitherRule<First, Second>& rules, const F& f) {
  span.rule == 0 ? f(rules.first) : f(rules.second);
}

/// One step of an elementwise update rule over many flat tensors. For each element:
///   update = rule(gradient · gradient_scale, states) + lr · weight_decay · master
///   master = (master − update) · factor;  weight = master rounded to T
/// with a factor of 1 unless UpdateSpan::heads gives another one.
/// An update also computes two sums for each block b of tensor t, in double and in an order that depends only on the
/// device and the spans. A sum is not stored if its offset is negative.
///   sums[weight_offsets[t] + b] = Σ master², after the update
///   sums[update_offsets[t] + b] = Σ update²
/// If verdict.skip is not 0, only the masters are read and every update is 0. Otherwise, and if digests.kept is not
/// empty, the digests are compared with the memory before the update and replaced by those of the memory after it.
/// All spans are in the memory of the stream's device, also those inside the rule.
///
/// The rule computes with states in accumulator precision. States of type S = bfloat16 are widened before it, and
/// rounded stochastically when they are stored; the update itself is computed from the states before rounding.
///
/// A rule, for example AdamW, has
/// - `states`, a constant;
/// - `scales_gradient`, a constant: false if the gradient is not multiplied by StepVerdict::gradient_scale;
/// - `changes_states`, a constant: false if it leaves the states as they are;
/// - `Element<A>`, a callable (A gradient, std::array<A, states>& state) → A update, which also updates the state;
/// - `element<A>()`, which makes an Element<A>, and `lr()`, the learning rate. Both are called on the device.
/// `Rule` may also be an EitherRule of two such rules.
template <class T, class Rule, class S = Accumulator<T>>
struct UpdateWeights {
  std::span<const UpdatedTensor<T, Rule::states, S>> tensors;
  std::span<const UpdateSpan> spans;  // spans of all tensors, see UpdatedTensor::first_span
  std::int64_t blocks;                // number of blocks of all tensors
  Rule rule;
  std::span<const StepVerdict> verdict;                          // [1]
  std::span<const std::int64_t> weight_offsets, update_offsets;  // [tensors]: offsets in `sums`, or negative
  std::span<double> sums;
  UpdateDigests digests = {};
  std::span<const double> head_factors = {};  // see QkClipFactors; empty if no span has HeadScaling
  StateRounding rounding = {};
};

/// Checks or renews the digests without an update: with `renew`, stores the digests of the present memory; otherwise
/// compares them with the memory and reports a difference in digests.damaged. digests.kept must not be empty.
template <class T, std::size_t states, class S = Accumulator<T>>
struct CheckDigests {
  std::span<const UpdatedTensor<T, states, S>> tensors;
  std::span<const UpdateSpan> spans;  // spans of all tensors
  std::int64_t blocks;                // number of blocks of all tensors
  UpdateDigests digests = {};
  bool renew;
};

template <class T, class Rule, class S>
void run(const CpuStream& stream, const UpdateWeights<T, Rule, S>& update);
template <class T, std::size_t states, class S>
void run(const CpuStream& stream, const CheckDigests<T, states, S>& check);
void run(const CpuStream& stream, const JudgeStep& judge);

template <class T, class Rule, class S>
void run(const CudaStream& stream, const UpdateWeights<T, Rule, S>& update);
template <class T, std::size_t states, class S>
void run(const CudaStream& stream, const CheckDigests<T, states, S>& check);
void run(const CudaStream& stream, const JudgeStep& judge);

#define LYCEUM_WEIGHT_UPDATE_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, CheckDigests, 2)     \
  LYCEUM_FLOATS(INSTANCE, CheckDigests, 2, bfloat16)
#define LYCEUM_UPDATE_RULE_KERNELS(INSTANCE, Rule) \
  LYCEUM_FLOATS(INSTANCE, UpdateWeights, Rule)     \
  LYCEUM_FLOATS(INSTANCE, UpdateWeights, Rule, bfloat16)

}  // namespace lyceum
