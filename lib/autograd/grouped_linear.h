#pragma once

#include <memory>

#include "autograd/tape.h"
#include "autograd/token_rows.h"
#include "kernels/segments.h"

namespace lyceum {

/// One linear layer per expert: y = x · W_eᵀ for the rows of segment e. x [rows, in], W_e [out, in], y [rows, out],
/// with rows sorted by expert and the padding of segments (see Segments). If `copies` is set, x is [tokens, in]: the
/// products read each token in place instead of a copy per row.
struct GroupedLinear {
  std::shared_ptr<const std::vector<Parameter*>> weights;  // one per expert, of equal shape
  std::shared_ptr<const SegmentTable> segments;
  TokenRows copies = {};

  static constexpr bool fills_empty_gradients = true;
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
