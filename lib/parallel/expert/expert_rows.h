#pragma once

#include <memory>

#include "autograd/token_rows.h"
#include "kernels/segments.h"

namespace lyceum {

/// The rows of the experts that a rank holds: a copy of a token for each of its choices that is one of them, sorted by
/// expert, then token, in segments.
struct ExpertRows {
  TokenRows copies;  // where the experts find the rows of x themselves
  std::shared_ptr<const SegmentTable> segments;

  std::int64_t tokens() const { return copies.row_of_pair.size() / copies.top_k; }
};

/// What is known of the choices of a plan.
struct KnownChoices {
  std::int64_t others = 0;  // experts that may be chosen besides, behind those that have rows
  std::int64_t pairs = -1;  // choices of experts that have rows; −1: any number
};

/// Rows of `experts`. On a GPU the host does not wait, and never learns how many rows each expert has. index: i32
/// [tokens, k], the experts that each token chose, or −1 for none.
std::shared_ptr<const ExpertRows> plan_rows(const Stream& stream, std::int64_t experts, const Tensor& index,
                                            const KnownChoices& known = {});

}  // namespace lyceum
