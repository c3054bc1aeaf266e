#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// factor · Σ w² over the rows of W from `first` on: a scalar [1] in accumulator precision. W [rows, columns].
struct RowPenalty {
  Parameter* weight;
  std::int64_t first;
  double factor;
  bool graded = true;  // false: another rank adds this to the sum of the weight's gradients

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved) const;
  std::array<Tensor, 0> backward(const Stream&, Saved&, const Tensor&) const { return {}; }
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;

 private:
  /// The rows as one, [1, elements], of a tensor as large as W.
  Tensor rows_of(const Tensor& whole) const;
};

}  // namespace lyceum
