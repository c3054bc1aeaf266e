#pragma once

#include <span>
#include <vector>

#include "core/range.h"
#include "optim/update_rule.h"

namespace lyceum {

/// The elements of trained units that optim.train_only leaves frozen, such as some rows of a router's matrix. Their
/// gradients and states are zero, so updates do not move them.
class FrozenElements {
 public:
  explicit FrozenElements(std::span<const UpdatedShare> shares);
  /// Zeroes their gradients. Call before anything reads the gradients of a step: norms must not include them.
  void clear_gradients(const Stream& stream, std::span<const UpdatedShare> shares) const;
  /// Zeroes their states, which a checkpoint of a run that trained them may have filled.
  void clear_states(const Stream& stream, std::span<const UpdatedShare> shares) const;

 private:
  struct Part {
    std::size_t share;
    Range range;  // range within the share's updated range
  };
  std::vector<Part> parts_;
};

}  // namespace lyceum
