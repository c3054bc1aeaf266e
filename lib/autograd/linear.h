#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// y = x · Wᵀ. x [tokens, in], W [out, in], y [tokens, out].
struct Linear {
  Parameter* weight;

  struct Saved {
    Tensor x;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// A Linear answered in accumulator precision whatever the type of x and W: the router's logits, where rounding would
/// change the choice of experts. Gradients of bf16 are made from 16 bits of dy.
struct PreciseLinear {
  Parameter* weight;

  struct Saved {
    Tensor x;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
