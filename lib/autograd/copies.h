#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// What a token gets from experts that give their input: x[t] times the sum of its gates for the choices `index` of at
/// least `first`. x [tokens, hidden], gates [tokens, k] in accumulator precision → [tokens, hidden].
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
