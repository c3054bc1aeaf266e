#include "optim/step_end.h"

#include <algorithm>
#include <iterator>

#include "kernels/tensor_kernels.h"

namespace lyceum {

StepEnd::StepEnd(const Mesh& mesh, const Optimizer& optimizer, const StepNumbers& numbers, int layers, double clip_norm,
                 const QkClip* qk_clip)
    : mesh_(mesh),
      optimizer_(optimizer),
      numbers_(numbers),
      clip_norm_(clip_norm),
      qk_clip_(qk_clip),
      gradient_norm_(optimizer.stream(), mesh, optimizer.shares(), layers),
      weight_norms_(optimizer.stream(), mesh, optimizer.shares(), layers, weight_norm_columns) {}

Tensor StepEnd::update() const {
  optimizer_.clear_frozen_gradients();
  gradient_norm_.launch(numbers_.own().norm(), numbers_.layer_gradient_norms());
  agree();
  launch(optimizer_.stream(), JudgeStep{.norm = numbers_.agreed().norm(),
                                        .loss = numbers_.agreed().cross_entropy(),
                                        .loss_weight = numbers_.loss_weight(),
                                        .limits = numbers_.limits(),
                                        .clip = clip_norm_,
                                        .verdict = numbers_.verdict()});
  Tensor squares = weight_norms_.zeros();
  optimizer_.update(numbers_.verdict(), weight_norms_, squares,
                    qk_clip_ ? qk_clip_->factors() : std::span<const double>());
  return squares;
}

/// Several ranks hold copies of each number. One of them contributes its value to the sum, the others contribute 0 · x,
/// which is NaN if their copy is not finite. So the sums are those of one copy, have the same bits on all ranks, and
/// are not finite if any rank's copy is not.
void StepEnd::agree() const {
  const Stream& stream = optimizer_.stream();
  const StepNumbers::Sums own = numbers_.own(), agreed = numbers_.agreed();
  clear(stream, agreed.all());
  launch(stream,
         AddScaled<double, double>{.x = own.norm(), .factor = mesh_.world.rank() == 0 ? 1.0 : 0.0, .y = agreed.norm()});
  launch(stream, AddScaled<double, double>{
                     .x = own.losses(), .factor = mesh_.tensor.rank() == 0 ? 1.0 : 0.0, .y = agreed.losses()});
  // Each loss belongs to one stage and is zero on the others.
  for (const Axis axis : whole_model) mesh_.group(axis).all_reduce_async(agreed.all()).wait();
}

std::vector<NormSums::Exchange> StepEnd::exchanges(const LossTable& losses, const NormSums::Counts& counts) {
  std::vector<NormSums::Exchange> all = NormSums::exchanges(counts, 1);
  for (const Axis axis : whole_model) all.push_back({axis, StepNumbers::Sums::size(losses)});
  std::ranges::move(NormSums::exchanges(counts, weight_norm_columns), std::back_inserter(all));
  return all;
}

}  // namespace lyceum
