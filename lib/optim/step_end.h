#pragma once

#include <vector>

#include "optim/optimizer.h"
#include "optim/qk_clip.h"
#include "optim/step_numbers.h"
#include "parallel/comm/mesh.h"
#include "parallel/data/norm_sums.h"

namespace lyceum {

/// Ends a training step, once this rank's shares hold the sums of all gradients. The host never reads a value: the
/// device decides if there is an update. Collective over the world, in rehearsals too. The steps are:
/// 1. Zero the gradients of frozen elements and compute the norm of all gradients.
/// 2. Agree with all ranks on the norm and the losses.
/// 3. Compute the verdict: whether to skip the update, and the scale of the gradients.
/// 4. Update the weights, with QK-clip if it is used.
/// 5. Compute the norms of the weights and of the update.
class StepEnd {
 public:
  /// `layers`: number of layers of the whole model, including input and output, see ParameterUnit::layer(). The
  /// references must outlive the object. `qk_clip`: null without QK-clip.
  StepEnd(const Mesh& mesh, const Optimizer& optimizer, const StepNumbers& numbers, int layers, double clip_norm,
          const QkClip* qk_clip = nullptr);

  /// Runs steps 1 to 4. Call after Optimizer::prepare(), once StepNumbers::own() has the losses and the gradients are
  /// complete (Zero::finish_gradients()). Returns the sums of squares of weights and update, for measure(). The caller
  /// calls Optimizer::count_update() if the verdict does not skip the update.
  Tensor update() const;
  /// Runs step 5: writes StepNumbers::weight_norms(). `squares` is the result of update(). This step is separate so
  /// that the updated weights can be sent to other ranks at the same time.
  void measure(const Tensor& squares) const {
    weight_norms_.norms(squares, numbers_.weight_norms(), numbers_.layer_weight_norms());
  }

  /// Returns the all-reduces of update() and measure(), in order, for cost estimates. Does not include that of QkClip.
  static std::vector<NormSums::Exchange> exchanges(const LossTable& losses, const NormSums::Counts& counts);
  /// Returns the bytes of device memory for the tables that the object keeps, for cost estimates. Does not include
  /// StepNumbers.
  static std::int64_t table_bytes(const NormSums::Counts& counts) {
    return GradientNorm::table_bytes(counts) + NormSums::table_bytes(counts, weight_norm_columns);
  }

 private:
  static constexpr int weight_norm_columns = 2;  // weights, update
  void agree() const;

  const Mesh& mesh_;
  const Optimizer& optimizer_;
  const StepNumbers& numbers_;
  double clip_norm_;
  const QkClip* qk_clip_;
  GradientNorm gradient_norm_;
  NormSums weight_norms_;
};

}  // namespace lyceum
