#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// The three products of a linear layer, of tensors of one type; the gradient of W is in its accumulator's.
void multiply_transposed(const Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& y);  // y = x · Wᵀ
void multiply(const Stream& stream, const Tensor& dy, const Tensor& weight, const Tensor& dx);           // dx = dy · W
void add_weight_grad(const Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gradient);  // += dyᵀ · x

/// y = x · Wᵀ + b. x [tokens, in], W [out, in], b [out] or none, y [tokens, out].
struct Linear {
  Parameter* weight;
  Parameter* bias = nullptr;

  struct Saved {
    Tensor x;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const;
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// A Linear, without a bias, answered in accumulator precision whatever the type of x and W: the router's logits, where
/// rounding would change the choice of experts. Gradients of bf16 are made from 16 bits of dy. The weight of a buffer
/// is rounded to the type of x.
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
