#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
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

/// Upper bounds of the numbers of tokens and choices on a rank. They are equal on all ranks that exchange rows, so
/// these ranks need not exchange the actual numbers.
struct RowBounds {
  std::int64_t tokens;   // of a rank
  std::int64_t choices;  // of one expert by the tokens of a rank

  /// Returns the most tokens that choose any of `experts` experts.
  std::int64_t rows(std::int64_t experts) const { return std::min(tokens, experts * choices); }
  /// Returns the most choices of `experts` experts by these tokens, each of which makes k choices.
  std::int64_t pairs(std::int64_t experts, std::int64_t k) const {
    return std::min(tokens * std::min(k, experts), experts * choices);
  }
};

/// Facts about the choices that plan_rows() does not have to read from the device.
struct KnownChoices {
  std::int64_t others = 0;  // number of further choices that get no rows; their indices follow those of the experts
  std::int64_t pairs = -1;  // number of choices of experts with rows; -1: unknown
  /// If set, nothing is read from any device, and memory for all rows within the bounds is allocated.
  std::optional<RowBounds> bounds = {};
  /// [experts]: number of choices of each expert; empty: unknown. A GPU then allocates memory for these rows only,
  /// which matters if experts have different widths.
  std::span<const std::int64_t> rows = {};
};

/// Returns `sorted` with its rows in another order. `sorted_of_row`: i64, for each new row the row of `sorted`; −1 for
/// a row without a token. `row_of_sorted`: the inverse map.
TokenRows reordered(const Stream& stream, const TokenRows& sorted, const Tensor& sorted_of_row,
                    const Tensor& row_of_sorted);

/// Assigns rows to the choices of `experts` experts. On a GPU, the host does not wait and never learns the number of
/// rows of each expert. `index`: i32 [tokens, k], the chosen experts, or -1 for none.
std::shared_ptr<const ExpertRows> plan_rows(const Stream& stream, std::int64_t experts, const Tensor& index,
                                            const KnownChoices& known = {});

}  // namespace lyceum
