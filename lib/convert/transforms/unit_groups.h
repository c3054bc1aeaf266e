#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "convert/transforms/experts.h"
#include "core/tensor.h"
#include "io/checkpoint/checkpoint.h"
#include "io/data/tokens/token_formats.h"

namespace lyceum {

/// Units of a layer's dense FFN in equal groups, whose rows of all matrices before the activation are near each other.
/// `config`: the checkpoint's, resolved.
FfnParts units_alike(const CheckpointReader& checkpoint, const Config& config, std::int64_t layer,
                     std::int64_t experts);

/// What the FFNs of a checkpoint's model read, while the model reads tokens.
class FfnInputs {
 public:
  /// Runs the whole model on this process. `config`: the checkpoint's, resolved; `prefix`: of the tokens, of which
  /// `sequences` samples, spread evenly, are read; 0: all. Throws as open_tokens() and load_weights().
  FfnInputs(const CheckpointReader& checkpoint, const Config& config, const std::string& prefix,
            std::int64_t sequences);

  /// [tokens, hidden]
  Matrix<const float> of(std::int64_t layer) const;

 private:
  std::int64_t hidden_;
  std::vector<std::vector<float>> layers_;
};

/// Units of a SwiGLU FFN in equal groups that keep most of the co-activation graph: between units i and j is
/// Σ |h_i|·|h_j| over tokens, h = silu(gate·x) ⊙ (up·x). For groups of one size that is what balanced_clusters() of the
/// rows |h_i| makes: Σ |a_i − mean|² = Σ |a_i|² − Σ over groups of Σ a_i·a_j / size.
FfnParts units_active_together(const CheckpointReader& checkpoint, const FfnInputs& inputs, std::int64_t layer,
                               std::int64_t experts);

}  // namespace lyceum
