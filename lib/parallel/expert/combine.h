#pragma once

#include <memory>

#include "autograd/tape.h"
#include "parallel/expert/expert_rows.h"

namespace lyceum {

/// y[t] = Σ_j gate[t, j] · (the row of t's j-th expert), j in order, over the experts that have rows.
/// Its gradients read the answers; experts of FFNs do without (GatedBank).
/// answers [segment rows, hidden], gates [tokens, k] in accumulator precision → y [tokens, hidden].
struct Combine {
  std::shared_ptr<const ExpertRows> rows;

  struct Saved {
    Tensor answers, gates;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& answers, const Tensor& gates) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
