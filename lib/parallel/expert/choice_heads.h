#pragma once

#include <memory>

#include "autograd/tape.h"
#include "parallel/expert/expert_rows.h"

namespace lyceum {

/// Converts queries of attention experts between two layouts: rows [segment rows, heads · dim], as computed by the
/// experts of a rank, and tokens [tokens, k · heads · dim], in which attention treats the heads of all k choices as
/// heads of one token. There, heads with the same key head are contiguous, whichever expert they belong to: the columns
/// are [key head, choice, head of the group, dim].
struct ChoiceHeads {
  std::shared_ptr<const ExpertRows> rows;
  std::int64_t groups;  // number of key heads; the heads of a row are divided into as many parts
  /// i64: for each part in the order of tokens, its index in the order of rows (SplitPairs::in_slots), and the inverse
  /// (SplitPairs::by_token).
  Tensor in_rows, in_tokens;

  ChoiceHeads(const Stream& stream, std::shared_ptr<const ExpertRows> of, std::int64_t groups);
};

/// Converts rows to tokens.
struct HeadsOfChoices {
  std::shared_ptr<const ChoiceHeads> heads;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& rows) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_tokens) const;
};

/// Converts tokens to rows; padding is zero.
struct RowsOfHeads {
  std::shared_ptr<const ChoiceHeads> heads;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& tokens) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_rows) const;
};

}  // namespace lyceum
