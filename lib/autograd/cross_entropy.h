#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// Σ_t −log softmax(logits[t])[targets[t]]: a scalar in accumulator precision, in nats; summed in the order of t.
/// Backward turns the logits into their gradient in place: nothing else may read them then.
struct CrossEntropy {
  Tensor targets;  // i32 [tokens]

  struct Saved {
    Tensor logits, log_sum_exp;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& logits) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
