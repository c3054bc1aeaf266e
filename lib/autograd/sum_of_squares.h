#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// Σ w² over all elements of W [rows, columns]. The result is a scalar [1] in accumulator precision.
struct SumOfSquares {
  Parameter* weight;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved) const;
  /// Adds 2 · dy · W to the gradient of W.
  std::array<Tensor, 0> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  bool weights_in_backward() const { return true; }
  void weight_grad(const Stream&, Saved&, const Tensor&) const {}
};

}  // namespace lyceum
