#pragma once

#include <optional>

#include "autograd/tape.h"
#include "core/range.h"

namespace lyceum {

/// y = x · rsqrt(mean(x²) + eps) · weight for each row of x [tokens, hidden].
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

}  // namespace lyceum
