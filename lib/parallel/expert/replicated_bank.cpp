#include "parallel/expert/replicated_bank.h"

namespace lyceum {

Tensor ReplicatedBank::forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& gates) const {
  slots->await(stream, *plan, *placement, again_in_forward);
  return bank.forward(stream, saved, x, gates);
}

std::array<Tensor, 2> ReplicatedBank::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  slots->await(stream, *plan, *placement, again_in_backward);
  return bank.backward(stream, saved, dy);
}

std::vector<Parameter*> ReplicatedBank::parameters() const {
  const auto& experts = *bank.bank.experts;
  return ExpertBank{.activation = {},
                    .experts = std::make_shared<std::vector<ExpertBank::Expert>>(
                        experts.begin(), experts.begin() + static_cast<std::ptrdiff_t>(own)),
                    .segments = {}}
      .parameters();
}

void ReplicatedBank::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  slots->begin_gradients(stream, *plan);
  bank.weight_grad(stream, saved, dy);
  slots->return_gradients(stream, *plan, *placement);
}

void ReplicatedBank::finish_weight_grad(const Stream& stream) const { slots->finish_gradients(stream); }

}  // namespace lyceum
