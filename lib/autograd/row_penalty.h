#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// A penalty on weights: factor · Σ w² over the rows of W [rows, columns] from `first` on. The result is a scalar [1]
/// in accumulator precision.
struct RowPenalty {
  Parameter* weight;
  std::int64_t first;
  double factor;
  bool graded = true;  // false: another rank adds this gradient to the sum over ranks

  struct Saved {
    Tensor gradient;  // of the rows; computed by backward, since weight_grad may run after W has been released
  };
  Tensor forward(const Stream& stream, Saved& saved) const;
  std::array<Tensor, 0> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;

 private:
  /// Returns a view of the rows from `first` on of `whole` (shaped like W) as one row [1, elements]. Throws an Error if
  /// there are none.
  Tensor rows_of(const Tensor& whole) const;
};

}  // namespace lyceum
