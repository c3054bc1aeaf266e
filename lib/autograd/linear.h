#pragma once

#include "autograd/tape.h"
#include "core/range.h"

namespace lyceum {

/// The three products of a linear layer. All tensors have one type; only the gradient of W has its accumulator type. x
/// [tokens, in], W [out, in], y [tokens, out].
///   multiply_transposed  y = x · Wᵀ
///   multiply             dx = dy · W
///   add_weight_grad      gradient += dyᵀ · x, or gradient = dyᵀ · x if it is empty
void multiply_transposed(const Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& y);
void multiply(const Stream& stream, const Tensor& dy, const Tensor& weight, const Tensor& dx);
void add_weight_grad(const Stream& stream, const Tensor& dy, const Tensor& x, Parameter& weight);

/// y = x · Wᵀ + b. x [tokens, in], W [out, in], b [out] or null, y [tokens, out].
struct Linear {
  Parameter* weight;
  Parameter* bias = nullptr;
  /// The columns of y to which the bias belongs, if it is only a slice; all of them if the count is 0. Ranks whose y
  /// are parts of a sum each have a slice, so the sum has the whole bias once.
  Range bias_columns = {};

  static constexpr bool fills_empty_gradients = true;
  struct Saved {
    Tensor x;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const;
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// A linear layer whose result has accumulator precision, even if x, W and the bias (or null) are bf16. For router
/// logits, whose rounding would change the choice of experts. In backward, a bf16 product reads dy as the sum of two
/// bf16 numbers, with 16 bits of its mantissa. A weight with accumulator precision (a buffer) is rounded to the type of
/// x.
struct PreciseLinear {
  Parameter* weight;
  Parameter* bias = nullptr;  // [out]

  static constexpr bool fills_empty_gradients = true;
  struct Saved {
    Tensor x;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const;
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
