#pragma once

#include "autograd/tape.h"
#include "kernels/activation_kind.h"
#include "kernels/segments.h"

namespace lyceum {

/// The activation of an FFN: silu(gate) ⊙ up for rows [gate | up] (SwiGLU), a clamped SwiGLU, or gelu(x), see
/// ActivationForward. x [tokens, inputs_of(function.kind) · width], result [tokens, width].
struct Activate {
  ActivationFunction function;

  struct Saved {
    Tensor x;
    std::shared_ptr<const SegmentTable> all;
    SegmentLayout in, out;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// y = max(x, 0), element by element.
struct Relu {
  struct Saved {
    Tensor y;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
