#pragma once

#include <memory>

#include "autograd/tape.h"
#include "parallel/expert/expert_rows.h"

namespace lyceum {

/// Queries of attention experts between two orders: rows [segment rows, heads · dim] as the experts of a rank make
/// them, and tokens [tokens, k · heads · dim], whose heads attention sees as one token's. There the heads that share
/// keys lie together, whatever expert they are of: columns are [key head, choice, head of the group, dim].
struct ChoiceHeads {
  std::shared_ptr<const ExpertRows> rows;
  std::int64_t groups;        // key heads
  Tensor in_rows, in_tokens;  // i64: SplitPairs' maps, of a row's heads by group

  ChoiceHeads(const Stream& stream, std::shared_ptr<const ExpertRows> of, std::int64_t groups);
};

/// Rows → tokens.
struct HeadsOfChoices {
  std::shared_ptr<const ChoiceHeads> heads;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& rows) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_tokens) const;
};

/// Tokens → rows; padding is zero.
struct RowsOfHeads {
  std::shared_ptr<const ChoiceHeads> heads;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& tokens) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_rows) const;
};

}  // namespace lyceum
