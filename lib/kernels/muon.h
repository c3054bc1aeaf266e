#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/stream.h"
#include "kernels/adamw.h"
#include "kernels/cuda/host_device.h"
#include "kernels/instances.h"
#include "kernels/weight_update.h"

namespace lyceum {

/// The last part of a step of Muon [Jordan 2024; Liu et al. 2025] as an update rule for UpdateWeights: update = η · x.
/// UpdatedTensor::gradient holds x, an element of the orthogonalised matrix times 0.2 √max(rows, cols). The state is
/// the momentum, which UpdateMomentum has already updated.
struct Muon {
  static constexpr std::size_t states = 1;  // momentum
  static constexpr bool scales_gradient = false, changes_states = false;

  std::span<const AdamW::Numbers> numbers;  // [1]

  template <class A>
  struct Element {
    A lr;
    LYCEUM_HOST_DEVICE A operator()(A x, std::array<A, states>&) const { return lr * x; }
  };
  template <class A>
  LYCEUM_HOST_DEVICE Element<A> element() const {
    return {.lr = static_cast<A>(lr())};
  }
  LYCEUM_HOST_DEVICE double lr() const { return numbers[0].lr; }
};

/// The rules of a model that Muon trains: AdamW for the tensors that are not Muon's.
using AdamWOrMuon = EitherRule<AdamW, Muon>;
/// UpdateSpan::rule of Muon's elements in AdamWOrMuon.
inline constexpr std::int32_t muon_span = 1;

/// The first part of a step of Muon, for the elements of spans with UpdateSpan::rule = muon_span:
///   g = gradient · gradient_scale;  m = μ m + (1 − μ) g;  gradient = (1 − μ) g + μ m
/// where m is the state and μ the momentum. If S is bfloat16, m is rounded stochastically when it is stored; the
/// gradient is computed from m before rounding. If verdict.skip is not 0, nothing changes. Otherwise, and if
/// digests.kept is not empty, the digests are updated by the change of m: they match the memory afterwards if and only
/// if they did before.
template <class T, class S = Accumulator<T>>
struct UpdateMomentum {
  std::span<const UpdatedTensor<T, AdamWOrMuon::states, S>> tensors;
  std::span<const UpdateSpan> spans;     // spans of all tensors
  std::int64_t blocks;                   // number of blocks of all tensors
  double momentum;                       // μ
  std::span<const StepVerdict> verdict;  // [1]
  UpdateDigests digests = {};
  StateRounding rounding = {};
};

template <class T, class S>
void run(const CpuStream& stream, const UpdateMomentum<T, S>& update);
template <class T, class S>
void run(const CudaStream& stream, const UpdateMomentum<T, S>& update);

#define LYCEUM_MUON_KERNELS(INSTANCE)               \
  LYCEUM_FLOATS(INSTANCE, UpdateMomentum)           \
  LYCEUM_FLOATS(INSTANCE, UpdateMomentum, bfloat16) \
  LYCEUM_UPDATE_RULE_KERNELS(INSTANCE, AdamWOrMuon)

}  // namespace lyceum
