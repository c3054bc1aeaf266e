#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/range.h"
#include "core/tensor.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Where one rank, or all of them together, saw the first number that is not finite, or not what it was when it was
/// computed before.
struct Finding {
  /// What says more about the cause comes later. `sum`: of gradients over copies; `gradient`: what one rank added.
  enum class Kind : std::uint8_t { none, norm, sum, gradient, loss, output, weight };
  Kind kind = Kind::none;
  std::int64_t order = 0;    // among findings of a kind the smallest is nearest to the cause
  std::string what;          // "the gradient of …"
  std::vector<int> ranks{};  // that saw it, once all have agreed

  /// Keeps what says more about the cause.
  void add(Finding other);
};

/// Collective: what says most of all ranks' findings, with the ranks: "the loss of its tokens on ranks 0-3". The same
/// on every rank.
Finding agree(const ProcessGroup& world, const Finding& own);

/// Whether elements `part` of a tensor, as if it were flat, are finite. Waits for the stream.
bool all_finite(const Stream& stream, const Tensor& values, const Range& part);

}  // namespace lyceum
