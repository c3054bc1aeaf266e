#pragma once

#include <span>
#include <vector>

#include "core/range.h"
#include "optim/update_rule.h"

namespace lyceum {

/// The elements of trained units that optim.train_only leaves frozen, such as some rows of a router's matrix. Their
/// gradients and states are kept at zero, so updates do not change them. Pass the same shares, in the same order, to
/// the constructor and to all functions.
class FrozenElements {
 public:
  explicit FrozenElements(std::span<const UpdatedShare> shares);
  /// Sets the gradients of the frozen elements to zero. Call before anything reads the gradients of a step: norms must
  /// not include them.
  void clear_gradients(const Stream& stream, std::span<const UpdatedShare> shares) const;
  /// Sets the states of the frozen elements to zero. Call after loading a checkpoint: a run that trained these elements
  /// may have saved other states.
  void clear_states(const Stream& stream, std::span<const UpdatedShare> shares) const;

 private:
  struct Part {
    std::size_t share;
    Range range;  // range within the share's updated range
  };
  std::vector<Part> parts_;
};

}  // namespace lyceum
