#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// The output of copy experts, which return their input [MoE++]: y[t] = x[t] · Σ gates[t, j] over the
/// choices j with index[t, j] ≥ first. x, y [tokens, hidden], gates [tokens, k] in accumulator precision.
struct CopyTokens {
  Tensor index;  // i32 [tokens, k]
  std::int64_t first;

  struct Saved {
    Tensor x, gates;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& gates) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
