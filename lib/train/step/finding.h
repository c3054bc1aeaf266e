#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/range.h"
#include "core/tensor.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// A wrong number that was found in a step: one that is not finite, or one that differs from the result of the first
/// computation when the step is computed again.
struct Finding {
  /// Later kinds say more about the cause than earlier ones. `sum`: a gradient summed over copies; `gradient`: the part
  /// of it that one rank computed.
  enum class Kind : std::uint8_t { none, norm, sum, gradient, loss, output, weight };
  Kind kind = Kind::none;
  std::int64_t order = 0;    // of two findings of one kind, the smaller order is nearer to the cause
  std::string what;          // "the gradient of …"
  std::vector<int> ranks{};  // world ranks with this finding; set by agree()

  /// Replaces this finding by `other` if `other` says more about the cause.
  void add(Finding other);
};

/// Collective. Returns the finding that says most about the cause among those of all ranks, equal on every rank. Adds
/// the ranks that have it to the text: "the loss of its tokens on ranks 0-3".
Finding agree(const ProcessGroup& world, const Finding& own);

/// True if the elements [part.first, part.end()) of `values`, taken as a flat tensor, are all finite. Waits for the
/// stream.
bool all_finite(const Stream& stream, const Tensor& values, const Range& part);

}  // namespace lyceum
