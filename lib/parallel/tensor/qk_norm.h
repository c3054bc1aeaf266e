#pragma once

#include "autograd/tape.h"
#include "kernels/qk_norm.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// RMSNorm of the queries and keys in projections q | k | v [tokens, shape.width()], in which the values stay as they
/// are. Where all heads are normed together, the ranks of the group that share them add up two numbers a token, each
/// way.
struct QkNorm {
  Parameter *q, *k;  // weights
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
