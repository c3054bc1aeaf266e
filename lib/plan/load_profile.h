#pragma once

#include <string>
#include <vector>

#include "model/routing/expert_placements.h"

namespace lyceum {

/// The load of the experts that a plan assumes.
struct LoadProfile {
  std::string description;  // for the report: the file and its steps, or the formula
  /// Tokens of each expert over the mean of all choices of its mixture, of mixtures whose experts are divided among
  /// ranks; others have an even load. Choices beyond capacity enter the mean only.
  std::vector<ExpertLoad> loads;
};

/// Reads the load of the experts of a resolved configuration from `text`, the value of --load:
///   - `zipf:S`, 0 <= S <= 8: the i-th most popular of n experts gets a share of the choices that is proportional to
///     i^-S and at most 1/k, since each of a token's k choices is another expert; what exceeds 1/k is divided among the
///     others in proportion. Each layer has its own order of popularity, which depends on the number of the layer only;
///   - else a routing log or the folder of a run: the tokens of each expert over the newest quarter of the records,
///     without dropped choices.
/// Throws a usage Error for a model without routed experts and for a bad S, and a bad_input Error for a file that
/// cannot be read, or whose layers, experts (number and widths) or top_k are not those of the model. Modules of
/// multi-token prediction may be missing in a file, since an evaluation has none; their load is even.
LoadProfile read_load_profile(const std::string& text, const Config& config);

}  // namespace lyceum
