#pragma once

#include <memory>

#include "autograd/tape.h"
#include "parallel/expert/expert_rows.h"

namespace lyceum {

/// Computes y[t] = Σ_j gate[t, j] · answers[row of t's j-th choice], in the order of j, over the choices that have
/// rows. answers [segment rows, hidden], gates [tokens, k] in accumulator precision → y [tokens, hidden]. Keeps the
/// answers for the gradients of the gates; GatedBank, used for FFN experts, does not need them.
struct Combine {
  std::shared_ptr<const ExpertRows> rows;

  struct Saved {
    Tensor answers, gates;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& answers, const Tensor& gates) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
