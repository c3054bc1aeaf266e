#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/flat_blocks.h"

namespace lyceum {

/// What changes from update to update. Stored where the kernel runs: the host need not know what the device found.
struct AdamWNumbers {
  double lr, rate, inverse_bias2;  // known beforehand: η, η / (1 − β₁ⁿ), 1 / (1 − β₂ⁿ) at update n
  double gradient_scale;           // JudgeUpdate's
  double skip;                     // JudgeUpdate's: not 0, and nothing is updated
};

/// A flat tensor of weights in a table, see BlockWalk; T is the type of the weights that the model reads.
template <class T>
struct AdamWRow {
  Accumulator<T>* master;  // f32 (f64) weights; may be `weight` itself where T is the same type
  Accumulator<T>*exp_avg, *exp_avg_sq;
  const Accumulator<T>* gradient;
  T* weight;
  std::int64_t count, first_block;
  std::int64_t first_run;  // in the list of runs: those of this tensor follow each other
};
/// Neighbours of a tensor with the same decay: up to element `end`, from where the run before ends. The last one ends
/// at the tensor's end or behind it.
struct DecayRun {
  std::int64_t end;
  double weight_decay;
};

/// What shows that nothing but updates changes an optimizer's memory: of each block of all tensors
///   Σ master + 3 Σ exp_avg + 5 Σ exp_avg_sq + 7 Σ weight, over the bits of elements as 32-bit words, modulo 2³²,
/// as the last update left it; weight counts if it is stored elsewhere than master. A word that changes always shows;
/// several may cancel out. It is made of what an update reads and writes anyhow.
struct AdamWDigests {
  std::span<std::uint32_t> kept = {};     // [blocks of all tensors]; empty: nobody looks
  std::span<std::uint32_t> damaged = {};  // [1]: 0, or blocks − b where b is the first block that is not what was kept
};
inline constexpr std::uint32_t exp_avg_factor = 3, exp_avg_sq_factor = 5, weight_factor = 7;

/// One AdamW step over many flat tensors [Loshchilov & Hutter 2019]:
///   g = gradient · gradient_scale;  m = β₁m + (1−β₁)g;  v = β₂v + (1−β₂)g²
///   u = rate · m / (√(v · inverse_bias2) + eps) + lr · weight_decay · master
///   master −= u;  weight = master rounded to T
/// By the way, for each block b of tensor t: sums[weight_places[t] + b] = Σ master² of what is there afterwards, and
/// sums[update_places[t] + b] = Σ u², in double and in an order that depends on nothing but the device and the runs;
/// nowhere where the place is negative. A step that is skipped reads the masters alone; its u is 0. Any other compares
/// the digests with what it finds, and keeps those of what it leaves.
/// Tables, places and numbers lie where the kernel runs.
template <class T>
struct AdamWStep {
  std::span<const AdamWRow<T>> tensors;
  std::span<const DecayRun> runs;
  std::int64_t blocks;                    // of all tensors
  std::span<const AdamWNumbers> numbers;  // [1]
  double beta1, beta2, eps;
  std::span<const std::int64_t> weight_places, update_places;  // [tensors]
  std::span<double> sums;
  AdamWDigests digests = {};
};

/// Keeps digests of what there is (`renew`), or compares, without a step.
template <class T>
struct AdamWCheck {
  std::span<const AdamWRow<T>> tensors;
  std::int64_t blocks;  // of all tensors
  AdamWDigests digests = {};
  bool renew;
};

/// skip = 1 where norm or loss is not finite, else 0; gradient_scale = clip / norm where 0 < clip < norm, else 1.
struct JudgeUpdate {
  std::span<const double> norm, loss;   // [1]
  std::span<const double> loss_weight;  // [1]: what a token's loss counts; 0 where the batch trains none
  double clip;
  std::span<AdamWNumbers> numbers;  // [1]
};

template <class T>
void run(const CpuStream& stream, const AdamWStep<T>& step);
template <class T>
void run(const CpuStream& stream, const AdamWCheck<T>& check);
void run(const CpuStream& stream, const JudgeUpdate& judge);

template <class T>
void run(const CudaStream& stream, const AdamWStep<T>& step);
template <class T>
void run(const CudaStream& stream, const AdamWCheck<T>& check);
void run(const CudaStream& stream, const JudgeUpdate& judge);

}  // namespace lyceum
