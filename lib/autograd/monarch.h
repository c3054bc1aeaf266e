#pragma once

#include <optional>

#include "autograd/tape.h"
#include "core/range.h"

namespace lyceum {

/// y = Out · In · x with a Monarch matrix: In is block-diagonal on neighbours in groups of b, Out on every (h/b)-th
/// element, so that both together reach all of a row [Dao et al. 2022; group fusion of MoHD 4.3]. x, y [tokens, h].
struct Monarch {
  Parameter *in, *out;               // [h / b, b, b]
  std::optional<Range> graded = {};  // rows that the weights' gradients sum over, as RmsNorm's

  /// dz: of the row between both, made by backward for the weight gradients.
  struct Saved {
    Tensor x, z, dz;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {in, out}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
