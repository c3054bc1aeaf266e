#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// y = x · rsqrt(mean(x²) + eps) · weight for each row of x [tokens, hidden].
struct RmsNorm {
  Parameter* weight;  // [hidden]
  double eps;

  struct Saved {
    Tensor x, inverse_rms;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
