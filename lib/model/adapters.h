#pragma once

#include <memory>
#include <vector>

#include "autograd/parameter.h"
#include "config/config.h"
#include "model/tensor_pattern.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// The adapters of optim.lora_*: matrices A and B of the logical matrices that optim.lora_targets names, see
/// LowRankAdapter. A begins uniform in ±1/√n, as in peft, and B as zero, so that the model is unchanged at first.
class Adapters {
 public:
  /// Throws a usage Error if a pattern of optim.lora_targets contains a range of rows. optim.lora_rank must not be 0.
  /// `mesh` must outlive this.
  Adapters(const OptimConfig& optim, const Mesh& mesh);

  /// The units into which the parameters of a trained unit are divided. They may be empty.
  struct Units {
    /// The parameters without adapters, and those with adapters.
    std::unique_ptr<ParameterUnit> frozen, adapted;
    /// The trained units with the factors A and B, one unit per group of ranks that hold copies. If ranks divide a
    /// matrix, they divide one factor of its adapter in the same way, and all of them hold the whole other factor.
    std::vector<std::unique_ptr<ParameterUnit>> factors;
  };
  /// Moves all parameters of `unit` to new units.
  Units divide(ParameterUnit& unit) const;

 private:
  bool adapts(const ParameterSlice& slice) const;
  void add(ParameterUnit& adapted, std::vector<std::unique_ptr<ParameterUnit>>& factors) const;

  std::int64_t rank_;
  double scale_;
  std::vector<TensorPattern> targets_;
  const Mesh& mesh_;
};

/// Throws a usage Error if the adapters of a resolved configuration cannot be made: if a pattern of optim.lora_targets
/// matches no matrix that has a gradient, if optim.lora_rank is above the smaller side of a matrix, or if it adapts an
/// embedding table that two pipeline stages hold. Does nothing if optim.lora_rank is 0.
void require_adaptable(const Config& config);

}  // namespace lyceum
