#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// Multiplies each row by a gate: y = σ(logit) · x. x, y [rows, cols], logits [rows, 1] in accumulator precision.
struct RowGate {
  struct Saved {
    Tensor x, logits;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& logits) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
