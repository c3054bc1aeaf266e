#pragma once

#include "autograd/rms_norm.h"
#include "autograd/tape.h"

namespace lyceum {

/// y[t] = [RmsNorm(a[t]) | RmsNorm(b[t])], the norms of two inputs side by side. a and b [tokens, hidden],
/// y [tokens, 2 · hidden]. All tensors have one type. RmsNorm::graded must be unset in both norms.
struct JoinedNorms {
  RmsNorm a, b;

  struct Saved {
    RmsNorm::Saved a, b;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x_a, const Tensor& x_b) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {a.weight, b.weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
