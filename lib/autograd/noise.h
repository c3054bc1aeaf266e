#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// Adds noise to a router's logits: y = logits + ε ⊙ softplus(scale), all [tokens, experts] in accumulator precision. ε
/// is standard normal (TokenNoise). [Shazeer et al. 2017, eq. 4]
struct NoisyLogits {
  std::uint64_t seed;
  std::int64_t layer, first;  // first: index in the step's batch of the token in row 0
  Tensor step;                // f64 [1]: number of the step

  struct Saved {
    Tensor scale;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& logits, const Tensor& scale) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
