#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "kernels/grouped_gemm.h"

namespace lyceum {

/// The values of one parameter of every expert, for a grouped product. `which`: an expert's parameter, as a member
/// pointer or a function.
template <class T, class Expert, class Which>
std::vector<Matrix<const T>> expert_values(const std::vector<Expert>& experts, Which which) {
  std::vector<Matrix<const T>> all;
  for (const Expert& expert : experts) all.push_back(std::invoke(which, expert)->value.template matrix<T>());
  return all;
}

/// Adds to the gradient of one parameter of every expert, those aside that are not trained. `grad`: all but d_weights,
/// over all experts.
template <class T, class Expert, class Which>
void add_expert_gradients(const Stream& stream, const GroupedWeightGrad<T>& grad, const std::vector<Expert>& experts,
                          Which which) {
  const auto trained = [&](std::size_t e) { return std::invoke(which, experts[e])->trained(); };
  for (std::size_t first = 0, last = 0; first < experts.size(); first = last) {
    std::vector<Matrix<Accumulator<T>>> gradients;  // of a run of neighbours
    for (last = first; last < experts.size() && trained(last); ++last) {
      gradients.push_back(std::invoke(which, experts[last])->gradient.template matrix<Accumulator<T>>());
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
                                        .picked_dy = grad.picked_dy});
  }
}

}  // namespace lyceum
