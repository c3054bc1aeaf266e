#pragma once

#include <array>

#include "autograd/tape.h"
#include "config/config.h"
#include "model/loss_kind.h"
#include "parallel/comm/process_group.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// Whether a layer with experts has its own losses, and whether they read how often experts were chosen, or
/// entropies of probabilities.
inline bool balances(const BalanceConfig& balance) { return balance.expert > 0 || balance.device > 0; }
inline bool informs(const BalanceConfig& balance) {
  return balance.mutual_information > 0 || balance.concentration > 0;
}
inline bool has_losses(const BalanceConfig& balance) {
  return balances(balance) || informs(balance) || balance.z_loss > 0;
}
/// Whether what they read is added up over the data ranks.
inline bool is_over_batch(const BalanceConfig& balance) {
  return balance.scope == BalanceScope::batch && (balances(balance) || informs(balance));
}

/// A loss that a sub-layer adds to cross-entropy.
struct Loss {
  LossKind kind;
  Variable value;  // a weighted scalar, summed over sequences
};

/// Expert-level and device-level balance losses, the router z-loss, mutual information and concentration, see
/// kernels/balance.h: five scalars f64, each summed over the sequences, so that dividing by the sequences of the global
/// batch gives the mean over sequences. Counts and probabilities are a sequence's own; with `batch` the counts, and the
/// probabilities of the last two, are those of all sequences that the data ranks run now.
/// Input: the load of whole sequences that Route gives; where ranks share the tokens, the sum of theirs, so that all
/// get the same losses, which count once.
struct BalanceLoss {
  double expert_factor = 0, device_factor = 0, z_factor = 0, information_factor = 0, concentration_factor = 0;
  const Placement* devices;  // must outlive this
  std::int64_t top_k, seq_len;
  Tensor choices{};                     // f64 [1]: k, where it is not top_k
  const ProcessGroup* batch = nullptr;  // data ranks, for the batch scope

  struct Saved {
    Tensor expert_slope, device_slope;  // f64 [sequences, experts]: derivatives by the sum of probabilities
    Tensor entropy_slope;               // likewise, where the last two are there
  };
  std::array<Tensor, 5> forward(const Stream& stream, Saved& saved, const Tensor& load) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_expert, const Tensor& d_device,
                                 const Tensor& d_z, const Tensor& d_information, const Tensor& d_concentration) const;

 private:
  bool informs() const { return information_factor > 0 || concentration_factor > 0; }
};

}  // namespace lyceum
