#pragma once

#include <memory>

#include "autograd/expert_bank.h"
#include "parallel/expert/spare_slots.h"

namespace lyceum {

/// The experts of a rank together with replicas of other ranks' experts. Forward and backward wait for the weights of
/// the replicas. The weight gradients of replicas are sent to the ranks of their originals, while the tape continues;
/// when the gradients are finished, they have been added to those of the originals. So the parameters are only those of
/// this rank's own experts. All its functions are collective over the expert group.
struct ReplicatedBank {
  GatedBank bank;  // of SpareSlots::bank()
  std::shared_ptr<SpareSlots> slots;
  std::shared_ptr<const ReplicaPlan> plan;
  const Placement* placement;  // must outlive the backward pass
  /// True if other passes may use the spare slots between SpareSlots::send() and forward(), and between forward() and
  /// backward(): missing weights are then sent again, see SpareSlots::await().
  bool again_in_forward, again_in_backward;
  std::size_t own;  // number of this rank's own experts, which come first in the bank

  static constexpr bool fills_empty_gradients = true;  // of own experts, before gradients of replicas are added
  using Saved = GatedBank::Saved;
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& gates) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const;
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
  void finish_weight_grad(const Stream& stream) const;
};

}  // namespace lyceum
