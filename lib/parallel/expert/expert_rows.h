#pragma once

#include <memory>
#include <span>

#include "autograd/token_rows.h"
#include "kernels/segments.h"

namespace lyceum {

/// The rows that the experts of a rank process: one copy of a token for each of its choices among these experts, sorted
/// by expert, then by token, in segments (one per expert, padded).
struct ExpertRows {
  TokenRows copies;  // maps between rows and tokens; the experts read the tokens in place
  std::shared_ptr<const SegmentTable> segments;

  std::int64_t tokens() const { return copies.row_of_pair.size() / copies.top_k; }
};

/// Facts about the choices that plan_rows() does not have to read from the device.
struct KnownChoices {
  std::int64_t others = 0;  // experts without rows that may be chosen too; their numbers follow those with rows
  std::int64_t pairs = -1;  // number of choices of experts with rows; -1: unknown
  /// [experts]: number of choices of each expert; empty: unknown. A GPU then allocates memory for these rows only,
  /// which matters if experts have different widths.
  std::span<const std::int64_t> rows = {};
};

/// Assigns rows to the choices of `experts` experts. On a GPU, the host does not wait and never learns the number of
/// rows of each expert. `index`: i32 [tokens, k], the chosen experts, or -1 for none.
std::shared_ptr<const ExpertRows> plan_rows(const Stream& stream, std::int64_t experts, const Tensor& index,
                                            const KnownChoices& known = {});

}  // namespace lyceum
