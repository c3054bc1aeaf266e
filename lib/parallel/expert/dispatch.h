#pragma once

#include "autograd/tape.h"
#include "parallel/expert/exchange.h"

namespace lyceum {

/// Copies of each token to the ranks and segments of its k experts. x [tokens, hidden] → rows [segment rows, hidden].
struct Dispatch {
  std::shared_ptr<const ExpertExchange> exchange;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_rows) const;
};

/// y[t] = Σ_j gate[t, j] · (the row of t's j-th expert), j in order.
/// rows [segment rows, hidden], gates [tokens, k] in accumulator precision → y [tokens, hidden].
struct Combine {
  std::shared_ptr<const ExpertExchange> exchange;

  struct Saved {
    Tensor sent, gates;  // sent: the experts' answers in sent order
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& rows, const Tensor& gates) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
