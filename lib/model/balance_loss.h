#pragma once

#include "autograd/tape.h"
#include "parallel/expert/placement.h"
#include "parallel/tensor/token_layout.h"

namespace lyceum {

/// Expert-level and device-level balance losses [DeepSeekMoE eq. 12–17], each a scalar summed over this rank's
/// sequences, so that dividing by the sequences of the global batch gives the mean over sequences:
///   α₁ Σ_i f_i P_i              f_i = E/(k·T) · (choices that fell on i), P_i = mean score of i
///   α₂ Σ_d mean_{i∈d}(f_i) Σ_{i∈d} P_i    d: the experts of one device
/// f and P are a sequence's own; with `batch` f is that of all sequences that the data ranks run now.
/// Inputs: scores [tokens of this rank's run, experts] in accumulator precision. Only P carries a gradient. Ranks that
/// share the tokens add up counts and scores first, so all get the same losses, which count once.
struct BalanceLoss {
  double expert_factor, device_factor;  // α₁, α₂
  const Placement* devices;             // must outlive this
  TokenLayout layout;
  Tensor index;                         // i32 [tokens, k]
  const ProcessGroup* batch = nullptr;  // data ranks, for the batch scope

  struct Saved {
    Tensor expert_slope, device_slope;  // [sequences, experts]: derivative by each token's score
    Shape shape;
  };
  std::array<Tensor, 2> forward(const Stream& stream, Saved& saved, const Tensor& scores) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_expert,
                                 const Tensor& d_device) const;
};

/// factor · Σ_t (log Σ_i exp(logits[t, i]))² / seq_len: the router z-loss [Zoph et al. 2022], summed over sequences
/// and over the ranks that share the tokens, like BalanceLoss.
struct ZLoss {
  double factor;
  TokenLayout layout;

  struct Saved {
    Tensor probabilities, log_sum_exp;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& logits) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
