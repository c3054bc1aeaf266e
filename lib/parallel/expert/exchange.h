#pragma once

#include <memory>
#include <vector>

#include "autograd/token_rows.h"
#include "core/tensor.h"
#include "kernels/segments.h"
#include "parallel/comm/process_group.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// Where every (token, choice) pair of a batch goes. Three orders of rows are in play:
///   pairs      token · k + choice, as the router made them, on the token's rank
///   sent       sorted by owner rank, then expert, on the token's rank (arrives grouped by source rank)
///   segments   sorted by local expert, then source rank, padded to Segments::alignment, on the expert's rank
/// A group of one sends straight into segments: there the sent order is the segments' with its padding, and nothing
/// moves.
struct ExpertExchange {
  std::int64_t top_k = 0, tokens = 0;
  Tensor pair_of_sent;                                // i64 [sent rows]; −1 for padding
  Tensor sent_of_pair;                                // i64 [tokens · k]; −1 for a choice of none
  std::vector<std::int64_t> send_rows, receive_rows;  // [ranks], where there are several
  Tensor received_of_row;                             // i64 [segment rows]: row as received, −1 for padding
  Tensor row_of_received;                             // i64 [received rows]
  std::shared_ptr<const SegmentTable> segments;
  const ProcessGroup* group = nullptr;  // none: all experts are here

  bool alone() const { return !group || group->size() == 1; }
  /// Where the experts find the rows of x themselves: of a group of one.
  TokenRows copies() const { return {pair_of_sent, sent_of_pair, top_k}; }
};

/// Collective over `group`, the ranks of the placement. On a GPU a group of one does not wait for the device: the host
/// never learns how many rows each expert has. index: i32 [tokens, k], the experts that each token chose, or −1 for
/// none. `others`: experts that may be chosen besides, behind those of the placement, to which nothing goes.
std::shared_ptr<const ExpertExchange> plan_exchange(const Stream& stream, const ProcessGroup& group,
                                                    const Placement& placement, const Tensor& index,
                                                    std::int64_t others = 0);

/// The same of `experts` that are all on this rank, which need no group.
std::shared_ptr<const ExpertExchange> plan_exchange(const Stream& stream, std::int64_t experts, const Tensor& index);

/// Rows in sent order to the ranks of their experts, into segments with zeroed padding. [sent, hidden] → [rows, hidden]
Tensor exchange_forward(const Stream& stream, const ExpertExchange& exchange, const Tensor& sent);
/// The way back: [rows, hidden] in segments → [sent, hidden].
Tensor exchange_back(const Stream& stream, const ExpertExchange& exchange, const Tensor& rows);

}  // namespace lyceum
