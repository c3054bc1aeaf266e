#pragma once

#include <memory>

#include "autograd/tape.h"
#include "autograd/token_rows.h"
#include "kernels/activation_kind.h"
#include "kernels/segments.h"

namespace lyceum {

/// Experts of any widths, expert e on the rows of segment e: y = W_down · activation(W_in x), which is
/// W_down · (silu(W_gate x) ⊙ W_up x) of SwiGLU and W_down · gelu(W_up x) of GELU.
/// x, y [rows, hidden], rows sorted by expert. A dense FFN is a bank of one expert.
struct ExpertBank {
  struct Expert {
    Parameter* in;    // [2 · width, hidden], gate above up; of GELU [width, hidden], up alone
    Parameter* down;  // [hidden, width]
  };
  Activation activation;
  std::shared_ptr<const std::vector<Expert>> experts;
  std::shared_ptr<const SegmentTable> segments;

  /// `hidden_rows`: segmented rows of W_in x; `activated`, `d_hidden`: made by backward for the weight gradient; of a
  /// GatedBank `activated` is gate · activation.
  struct Saved {
    Tensor x, hidden_rows, activated, d_hidden;
    SegmentLayout outer, in, inner;  // rows of hidden, of W_in x, of width_e
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const;
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// A bank on copies of tokens, and the weighted sum of its answers: y[t] = Σ_j gate[t, j] · (answer of t's j-th
/// expert), j in order, over the choices that have rows. x, y [tokens, hidden], gates [tokens, k] in accumulator
/// precision; the products read the tokens in place.
///
/// Backward neither keeps nor reads the answers. On the row of choice j, where a = activation(W_in x[t]),
///   p = W_downᵀ · dy[t],  d_gate[t, j] = ⟨dy[t], W_down · a⟩ = ⟨p, a⟩,  d_a = gate · p,  dW_down += dy[t] ⊗ (gate ·
///   a),
/// so that dy is read in place too.
struct GatedBank {
  ExpertBank bank;
  TokenRows copies;

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
