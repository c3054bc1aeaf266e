#pragma once

#include <memory>

#include "autograd/tape.h"
#include "autograd/token_rows.h"
#include "core/range.h"
#include "kernels/activation_kind.h"
#include "kernels/segments.h"

namespace lyceum {

/// A bank of experts, possibly of different widths. Expert e computes y = W_down · activation(W_in x + b_in) + b_down
/// for the rows of segment e. With SwiGLU, W_in is W_gate above W_up. ActivationForward has the activations. The
/// experts have either none or all of the biases b_in, and so with b_down. Ranks that hold slices of one expert each
/// add a slice of b_down to their part of y, so the sum of these parts has the whole bias once. x, y [rows, hidden],
/// with rows sorted by expert. Their number is segments->total(): it includes the padding of segments (see Segments),
/// which must be zero in x and is zero in y. Throws an Error if the numbers of rows or experts differ. A dense FFN is a
/// bank of one expert.
struct ExpertBank {
  struct Expert {
    Parameter* in;                   // SwiGLU: [2 · width, hidden], gate above up; GELU: [width, hidden]
    Parameter* down;                 // [hidden, width]
    Parameter* in_bias = nullptr;    // like the rows of `in`
    Parameter* down_bias = nullptr;  // [down_columns.count]: a slice of the hidden elements of the bias
    Range down_columns = {};         // the columns of y to which down_bias belongs, the same for all experts of a bank
  };
  ActivationFunction activation;
  std::shared_ptr<const std::vector<Expert>> experts;
  std::shared_ptr<const SegmentTable> segments;

  static constexpr bool fills_empty_gradients = true;
  /// `hidden_rows`: W_in x, in segments. `activated`, `d_hidden`: computed by backward for weight_grad; for a GatedBank
  /// `activated` is gate · activation(W_in x + b_in).
  struct Saved {
    Tensor x, hidden_rows, activated, d_hidden;
    SegmentLayout outer, in, inner;  // layouts of rows of x and y, of W_in x, of the activation
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const;
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// A bank of experts applied to tokens, with the gate-weighted sum of its outputs: y[t] = Σ_j gates[t, j] ·
/// expert_j(x[t]), over those choices j of token t that have a row, in order. x, y [tokens, hidden], gates [tokens, k]
/// in accumulator precision. The products read tokens in place: no copy per choice is made.
///
/// Backward needs no expert outputs. For the row of choice j of token t, with a = activation(W_in x[t] + b_in):
///   p = W_downᵀ · dy[t]
///   d_gates[t, j] = ⟨dy[t], W_down · a + b_down⟩ = ⟨p, a⟩ + ⟨dy[t], b_down⟩
///   d_a = gate · p
///   dW_down += dy[t] ⊗ (gate · a)
///   db_down += gate · dy[t]
/// So dy is read in place too.
struct GatedBank {
  ExpertBank bank;
  TokenRows copies;

  static constexpr bool fills_empty_gradients = true;
  struct Saved {
    ExpertBank::Saved bank;
    Tensor gates;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& gates) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return bank.parameters(); }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
