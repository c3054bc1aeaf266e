#pragma once

#include <optional>

#include "autograd/tape.h"
#include "core/range.h"

namespace lyceum {

/// y = x · rsqrt(mean(x²) + eps) · weight for each row of x [tokens, hidden], in the type of x.
struct RmsNorm {
  Parameter* weight;  // [hidden]
  double eps;
  std::optional<Range> graded = {};  // rows that the weight's gradient sums over, where others add the rest; none: all

  struct Saved {
    Tensor x, inverse_rms;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// A residual connection and the norm of its result: {x + added, RmsNorm of it}.
struct SumNorm {
  RmsNorm norm;

  using Saved = RmsNorm::Saved;
  static constexpr std::size_t weight_grad_reads = 1;  // the gradient of the normed rows
  std::array<Tensor, 2> forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& added) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& d_sum, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return norm.parameters(); }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& d_sum, const Tensor& dy) const;
};

}  // namespace lyceum
