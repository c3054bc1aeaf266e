#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// Row-wise softmax in accumulator precision. [tokens, experts]
struct Softmax {
  struct Saved {
    Tensor y;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// The k largest scores of each row as gates [tokens, k], largest first, and the experts that they belong to (i32
/// [tokens, k]; no gradient). Gates are the raw scores [DeepSeekMoE eq. 9–10], or divided by their sum with
/// `renormalize` [GShard].
struct SelectTopK {
  std::int64_t k;
  bool renormalize = false;
  bool even = false;  // choices that fall on all experts alike instead of the best: EvenChoices

  struct Saved {
    Tensor index, gates, sums;  // sums: of the raw scores, where renormalized
    Shape shape;                // of the scores
  };
  std::array<Tensor, 2> forward(const Stream& stream, Saved& saved, const Tensor& scores) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_gates, const Tensor&) const;
};

}  // namespace lyceum
