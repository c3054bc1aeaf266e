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

/// Returns the units of a layer's dense FFN in `experts` groups of equal size. The units of a group have similar
/// weights: their rows of all matrices before the activation are near each other. `config` is the checkpoint's,
/// resolved. Precondition: the layer's FFN is dense. Throws a failed Error unless `experts` divides its
/// width.
FfnParts group_units_by_weights(const CheckpointReader& checkpoint, const Config& config, std::int64_t layer,
                                std::int64_t experts);

/// The inputs of all FFNs of a checkpoint's model on some tokens, in memory: f32, layers · tokens · hidden.
class FfnInputs {
 public:
  /// Runs the whole model on the CPU of this process. `config` is the checkpoint's, resolved. `data` names one or more
  /// prefixes of tokens, as data.valid does. `sequences` samples of batch.seq_len of each, spread evenly, are read; 0
  /// reads all. Throws as open_tokens(), require_one_tokenizer() and load_weights() do, and a usage Error if the
  /// prefixes have weights.
  FfnInputs(const CheckpointReader& checkpoint, const Config& config, const std::string& data, std::int64_t sequences);

  /// Returns the inputs of a layer's FFN, [tokens, hidden]. Valid as long as this object.
  Matrix<const float> of(std::int64_t layer) const;

 private:
  std::int64_t hidden_;
  std::vector<std::vector<float>> layers_;
};

/// Returns the units of a layer's SwiGLU FFN in `experts` groups of equal size that are often active together. The
/// weight of units i and j in the co-activation graph is Σ |h_i|·|h_j| over tokens, h = silu(gate·x) ⊙ (up·x); the
/// groups keep most of the total weight. For groups of one size, balanced_clusters() of the rows a_i = |h_i| optimises
/// this, since Σ |a_i − mean|² = Σ |a_i|² − Σ over groups of Σ a_i·a_j / size.
FfnParts group_units_by_coactivation(const CheckpointReader& checkpoint, const FfnInputs& inputs, std::int64_t layer,
                                     std::int64_t experts);

}  // namespace lyceum
