#pragma once

#include <vector>

#include "optim/optimizer.h"
#include "optim/step_numbers.h"
#include "parallel/comm/mesh.h"
#include "parallel/data/norm_sums.h"

namespace lyceum {

/// Ends a training step once this rank's shares hold the sums of all gradients. Nothing here depends on the value of a
/// number on the host: the device decides if there is an update. Collective over the world, also when it is rehearsed.
///   1. gradients of frozen elements are zeroed, and the norm of all gradients is taken
///   2. all ranks agree on the norm and the losses
///   3. the verdict: skip, gradient scale
///   4. the update
///   5. norms of the weights and of the update
class StepEnd {
 public:
  /// `layers`: of the whole model, input and output included, see ParameterUnit::layer(). All references must outlive
  /// this.
  StepEnd(const Mesh& mesh, const Optimizer& optimizer, const StepNumbers& numbers, int layers, double clip_norm);

  /// Steps 1 to 4. Returns the sums of squares for measure().
  Tensor update() const;
  /// Step 5; apart, so that the updated weights can travel to other ranks meanwhile.
  void measure(const Tensor& squares) const { weight_norms_.norms(squares, numbers_.weight_norms()); }

  /// The all-reduces of both calls: numbers in f64. For plans.
  static std::vector<NormSums::Exchange> exchanges(const LossTable& losses, const NormSums::Counts& counts);
  /// Bytes of buffers that are kept, the step's numbers aside.
  static std::int64_t kept_bytes(const NormSums::Counts& counts) {
    return GradientNorm::kept_bytes(counts) + NormSums::kept_bytes(counts, weight_norm_columns);
  }

 private:
  static constexpr int weight_norm_columns = 2;  // weights, update
  void agree() const;

  const Mesh& mesh_;
  const Optimizer& optimizer_;
  const StepNumbers& numbers_;
  double clip_norm_;
  GradientNorm gradient_norm_;
  NormSums weight_norms_;
};

}  // namespace lyceum
