#pragma once

#include <array>

#include "autograd/tape.h"
#include "config/config.h"
#include "model/loss_kind.h"
#include "model/routing/running_loads.h"
#include "parallel/comm/process_group.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// True if the expert-level or the device-level balance loss is on. Both depend on how often experts were chosen.
inline bool has_balance_losses(const BalanceConfig& balance) { return balance.expert > 0 || balance.device > 0; }
/// True if the mutual information or the concentration loss is on. Both depend on the entropies of probabilities.
inline bool has_information_losses(const BalanceConfig& balance) {
  return balance.mutual_information > 0 || balance.concentration > 0;
}
/// True if routers have losses: one of the above or the z-loss.
inline bool has_losses(const BalanceConfig& balance) {
  return has_balance_losses(balance) || has_information_losses(balance) || balance.z_loss > 0;
}
/// True if the counts and probabilities that losses of routers read are summed over the data ranks.
inline bool is_over_batch(const BalanceConfig& balance) {
  return balance.scope != BalanceScope::sequence && (has_balance_losses(balance) || has_information_losses(balance));
}

/// A loss that is added to the model's cross-entropy.
struct Loss {
  LossKind kind;
  /// Scalar. Losses of routers are multiplied by their factor and summed over sequences. The cross-entropy of a module
  /// of multi-token prediction is summed over tokens, without its factor.
  Variable value;
};

/// Computes five losses: expert-level balance, device-level balance, router z-loss, mutual information and
/// concentration; kernels/balance.h has the formulas.
///   - Each loss is a scalar f64, multiplied by its factor and summed over the sequences. Divided by the sequences of
///     the global batch, it is a mean over sequences.
///   - The input is the load that Route computes, f64 [sequences, load_width(experts)]. If ranks share the tokens of a
///     sequence, it must be the sum over these ranks, so that all of them get the same losses.
///   - Without `batch`, a loss reads the counts and probabilities of one sequence. With `batch`, it reads the counts of
///     all sequences in the current pass of the data ranks, and the last two losses also read the probabilities of all
///     of them. With `running`, it also reads those of the earlier passes of the step. The derivatives have the same
///     formulas as with `batch`: the running sums, divided by their number of sequences, estimate the means over the
///     whole step, to which later passes have yet to contribute.
/// Collective over `batch`, if set.
struct BalanceLoss {
  double expert_factor = 0, device_factor = 0, z_factor = 0, information_factor = 0, concentration_factor = 0;
  const Placement* devices;  // groups of experts for device-level balance; must outlive this
  std::int64_t top_k, seq_len;
  Tensor choices{};                     // f64 [1]: k, if it differs from top_k
  const ProcessGroup* batch = nullptr;  // the data ranks; null for balance.scope = sequence
  RunningLoads::Sums running{};         // sums over the step so far for balance.scope = global; undefined otherwise

  struct Saved {
    /// f64 [sequences, experts]: derivatives of the two balance losses, with their factors, with respect to the
    /// sequence's sums of probabilities.
    Tensor expert_slope, device_slope;
    /// f64 [sequences, experts]: derivatives of Σ H(P) over sequences (kernels/balance.h), without a factor, with
    /// respect to the same sums; undefined if mutual information and concentration are off.
    Tensor entropy_slope;
  };
  /// Returns the five losses, f64 [1] each. Throws an Error if the load has another width.
  std::array<Tensor, 5> forward(const Stream& stream, Saved& saved, const Tensor& load) const;
  /// Returns the gradient with respect to the load, which is 0 for its counts. Each d_… [1] is the gradient with
  /// respect to one loss; undefined means 0.
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_expert, const Tensor& d_device,
                                 const Tensor& d_z, const Tensor& d_information, const Tensor& d_concentration) const;

 private:
  bool has_information_losses() const { return information_factor > 0 || concentration_factor > 0; }
};

}  // namespace lyceum
