#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "kernels/grouped_gemm.h"

namespace lyceum {

/// Returns the value of one parameter of every expert, in order, for a grouped product. `which` selects the parameter
/// of an expert: a pointer to member or a function.
template <class T, class Expert, class Which>
std::vector<Matrix<const T>> expert_values(const std::vector<Expert>& experts, Which which) {
  std::vector<Matrix<const T>> all;
  for (const Expert& expert : experts) all.push_back(std::invoke(which, expert)->value.template matrix<T>());
  return all;
}

/// Adds to the gradient of one parameter of every expert, or writes it if it is empty, skipping experts whose parameter
/// is not trained. `grad` describes the product over all experts, without d_weights and accumulate. Makes one launch
/// per range of consecutive trained experts whose gradients are either all sums or all empty.
template <class T, class Expert, class Which>
void add_expert_gradients(const Stream& stream, const GroupedWeightGrad<T>& grad, const std::vector<Expert>& experts,
                          Which which) {
  const auto parameter = [&](std::size_t e) -> Parameter& { return *std::invoke(which, experts[e]); };
  for (std::size_t first = 0, last = 0; first < experts.size(); first = last) {
    std::vector<Matrix<Accumulator<T>>> gradients;  // of experts [first, last)
    bool adds = true;
    for (last = first; last < experts.size() && parameter(last).trained(); ++last) {
      if (last > first && parameter(last).gradient_empty == adds) break;
      adds = parameter(last).contribute();
      gradients.push_back(parameter(last).gradient.template matrix<Accumulator<T>>());
    }
    const std::size_t count = gradients.size();
    if (count == 0) {
      ++last;
      continue;
    }
    launch(stream, GroupedWeightGrad<T>{.segments = grad.segments.part(first, count),
                                        .dy = grad.dy.part(first, count),
                                        .x = grad.x.part(first, count),
                                        .d_weights = gradients,
                                        .picked = grad.picked,
                                        .picked_dy = grad.picked_dy,
                                        .accumulate = adds});
  }
}

}  // namespace lyceum
