#pragma once

#include <memory>

#include "autograd/tape.h"
#include "autograd/token_rows.h"
#include "kernels/segments.h"

namespace lyceum {

/// A linear layer of every expert: y = x · W_eᵀ on the rows of segment e. x [rows, in], W_e [out, in], y [rows, out],
/// rows sorted by expert. With `copies`, x [tokens, in] has the tokens, whose rows the products read in place.
struct GroupedLinear {
  std::shared_ptr<const std::vector<Parameter*>> weights;  // an expert's each, of one shape
  std::shared_ptr<const SegmentTable> segments;
  TokenRows copies = {};

  struct Saved {
    Tensor x;
    SegmentLayout in, out;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return *weights; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
