#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "autograd/expert_bank.h"
#include "core/dtype.h"
#include "core/error.h"

namespace lyceum {

/// Marks of weights in bf16 show which expert has been sent, and when. The first and the last element of both tensors
/// of an expert are marked. The marks of all elements and experts and of four consecutive steps differ.
inline constexpr std::int64_t marks_per_expert = 4, marked_steps = 4;
inline constexpr std::int64_t first_mark = 0x0080, end_mark = 0x7f80;  // bits of positive normal numbers in bf16
/// Maximum number of experts.
inline constexpr std::int64_t marked_experts = (end_mark - first_mark) / (marks_per_expert * marked_steps);

/// Returns the marked elements of an expert's values or gradients.
template <class T>
std::array<T*, marks_per_expert> marked_elements(const ExpertBank::Expert& expert, Tensor Parameter::*tensor) {
  const Tensor &in = expert.in->*tensor, &down = expert.down->*tensor;
  return {in.data<T>(), in.data<T>() + in.size() - 1, down.data<T>(), down.data<T>() + down.size() - 1};
}

/// Returns the bits of the mark of an expert's `element`-th marked element.
inline std::uint16_t mark_of(std::int64_t step, std::int64_t expert, std::size_t element) {
  const std::int64_t phase = (step % marked_steps + marked_steps) % marked_steps;
  return static_cast<std::uint16_t>(first_mark + (expert * marked_steps + phase) * marks_per_expert +
                                    static_cast<std::int64_t>(element));
}

inline void set_marks(const ExpertBank::Expert& weights, std::int64_t step, std::int64_t expert) {
  const auto elements = marked_elements<bfloat16>(weights, &Parameter::value);
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i]->bits = mark_of(step, expert, i);
}

/// Throws an Error unless these weights have the marks of an expert in a step.
inline void check_marks(const ExpertBank::Expert& weights, std::int64_t step, std::int64_t expert) {
  const auto elements = marked_elements<bfloat16>(weights, &Parameter::value);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    require(elements[i]->bits == mark_of(step, expert, i),
            "the weights in the place of expert {} are not those of step {}: element {} has the bits {}, not {}",
            expert, step, i, elements[i]->bits, mark_of(step, expert, i));
  }
}

}  // namespace lyceum
