#pragma once

#include <memory>
#include <vector>

#include "autograd/tape.h"
#include "kernels/segments.h"
#include "parallel/expert/segmented_rows.h"
#include "parallel/tensor/collectives.h"

namespace lyceum {

/// Rows of experts whose widths the ranks of a group share. Each rank is sent other rows, and each needs the rows of
/// all. Rows travel without padding:
///   own        this rank's segments, as the dispatch filled them
///   packed     the same without padding, rank after rank on arrival
///   segmented  of all ranks together: sorted by expert, then rank, padded
struct ExpertRows {
  RowShards packed;
  SegmentedRows own;        // packed rows of this rank, in its own segments
  SegmentedRows segmented;  // packed rows of all ranks
};

/// Collective over `group`, whose ranks hold parts of the same experts. `own`: rows for each of them on this rank.
std::shared_ptr<const ExpertRows> plan_rows(const Stream& stream, const ProcessGroup& group, const SegmentTable& own);

/// Every rank's rows, on every rank; backwards the sum of what the ranks make of them, to their owner.
/// [own segment rows, hidden] → [segment rows, hidden]
struct GatherExpertRows {
  std::shared_ptr<const ExpertRows> rows;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& own) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// The way back: partial answers of all ranks to the rows' owners, as sums; backwards gathers.
struct ReduceExpertRows {
  std::shared_ptr<const ExpertRows> rows;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& partial) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_own) const;
};

}  // namespace lyceum
