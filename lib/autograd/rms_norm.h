#pragma once

#include <optional>

#include "autograd/tape.h"
#include "core/range.h"

namespace lyceum {

/// y = x · rsqrt(mean(x²) + eps) · weight for each row of x [tokens, hidden]; y has the type of x.
/// [Zhang & Sennrich 2019]
struct RmsNorm {
  Parameter* weight;  // [hidden]
  double eps;
  std::optional<Range> graded = {};  // rows of dy that this rank adds to the weight's gradient; unset: all

  struct Saved {
    Tensor x, inverse_rms;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// A residual connection followed by a norm: returns {x + added, RmsNorm(x + added)}, from x and added [tokens,
/// hidden]. All tensors, the weight included, have one type.
struct SumNorm {
  RmsNorm norm;

  using Saved = RmsNorm::Saved;
  static constexpr std::size_t weight_grad_reads = 1;  // dy of the second result, the normalised rows
  std::array<Tensor, 2> forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& added) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& d_sum, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return norm.parameters(); }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& d_sum, const Tensor& dy) const;
};

}  // namespace lyceum
