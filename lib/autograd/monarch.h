#pragma once

#include <optional>

#include "autograd/tape.h"
#include "core/range.h"

namespace lyceum {

/// Multiplication by a Monarch matrix: y = Out · In · x for each row x of width h. In is block-diagonal over groups of
/// b neighbouring elements. Out is block-diagonal over groups of every (h/b)-th element. Together they connect every
/// input element with every output element if h ≤ b². [Dao et al. 2022; group fusion of MoHD 4.3]
/// x, y [tokens, h].
struct Monarch {
  Parameter *in, *out;               // [h / b, b, b]
  std::optional<Range> graded = {};  // rows of dy that this rank adds to the weights' gradients; unset: all

  /// z = In · x. dz is computed by backward for weight_grad.
  struct Saved {
    Tensor x, z, dz;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {in, out}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
