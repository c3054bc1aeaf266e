#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// logits + ε ⊙ softplus(scale), all in accumulator precision [tokens, experts]; ε as TokenNoise has it. [Shazeer et
/// al. 2017, eq. 4]
struct NoisyLogits {
  std::uint64_t seed;
  std::int64_t layer, first;  // first: token of the first row, counted through the batch of the step
  Tensor step;                // f64 [1]

  struct Saved {
    Tensor scale;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& logits, const Tensor& scale) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
