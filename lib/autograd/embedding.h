#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// y[t] = table[tokens[t]]. table [vocab, hidden]; y [tokens, hidden].
struct Embedding {
  Parameter* table;
  Tensor tokens;  // i32, each below vocab

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved) const;
  std::array<Tensor, 0> backward(const Stream&, Saved&, const Tensor&) const { return {}; }
  std::vector<Parameter*> parameters() const { return {table}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
