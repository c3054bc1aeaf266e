#pragma once

#include "autograd/tape.h"
#include "kernels/qk_norm.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// RMSNorm of the queries and keys in projections q | k | v [tokens, shape.width()]; the values are copied. If all
/// heads are normalised together (not shape.by_head), the ranks of `group`, among which the heads are divided, add up
/// two numbers per token in the forward pass and two in the backward pass.
struct QkNorm {
  Parameter *q, *k;  // the parameters of the norm
  QkNormShape shape;
  double eps;
  const ProcessGroup* group;

  struct Saved {
    Tensor x, inverse_rms;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {q, k}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
