#pragma once

#include <cstdint>

#include "io/config.h"

namespace lyceum {

/// Sizes that follow from a resolved configuration alone.
struct ModelCounts {
  std::int64_t parameters;     // all
  std::int64_t activated;      // used by one token: the shared and the top_k mean-width experts, both embeddings
  std::int64_t experts_total;  // parameters of all experts, shared ones too
  std::int64_t experts_activated;
  /// Forward and backward of one sequence: 6 · (activated without the input embedding) · T + 12 · layers · T² · heads ·
  /// head_dim, attention counted in full as the papers do.
  double flops_per_sequence;
  /// The same with causal attention at half, as MFU counts it.
  double causal_flops_per_sequence;
};
ModelCounts count_model(const Config& config);

}  // namespace lyceum
