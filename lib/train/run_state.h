#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/layers.h"

namespace lyceum {

/// What a checkpoint keeps of a run besides tensors; equal on all ranks.
struct RunState {
  std::string run_uuid;
  std::int64_t step = 0;     // steps done
  std::int64_t updates = 0;  // of the optimizer: steps that were not left out
  std::int64_t samples = 0;  // position in the order of samples
  std::int64_t skipped = 0, skipped_in_a_row = 0;
  std::vector<RoutingSums> routing;  // since the last record, over all ranks
  std::int64_t routing_tokens = 0;

  void add_routing(const std::vector<RoutingSums>& sums, std::int64_t tokens);
  void clear_routing();

  /// All but run_uuid and step, which a checkpoint's header has, as JSON.
  std::string text() const;
  /// The other way. Throws a bad_input Error for text of another form, and where routing sums are not those of a model
  /// with the layers of `expected`.
  void restore(const std::string& text, const std::vector<RoutingSums>& expected);
};

}  // namespace lyceum
