#pragma once

#include "core/tensor.h"

namespace lyceum {

/// Measurements of a training step that its passes add to, for this rank. All tensors are in the memory of the device.
struct LayerSums {
  /// f64 [layers of the model]: for each block, Σ of the squares of its output over the rows of this rank, see
  /// TokenLayout; 0 for blocks of other pipeline stages.
  Tensor squares;
  Tensor largest_logit;  // f64 [1]: of the head, over all words and all tokens; −∞ if this rank has no head
};

}  // namespace lyceum
