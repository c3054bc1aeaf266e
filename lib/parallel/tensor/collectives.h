#pragma once

#include <vector>

#include "autograd/tape.h"
#include "core/range.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// The distribution of the rows of a matrix [rows, cols] over the ranks of a group: rank r holds rows[r] consecutive
/// rows, in rank order.
struct RowShards {
  const ProcessGroup* group;
  std::vector<std::int64_t> rows;  // [ranks]
  bool routed = false;             // true if the numbers of rows depend on the data

  /// Divides the rows as evenly as possible; the first ranks have one more.
  static RowShards even(const ProcessGroup& group, std::int64_t rows);
  std::int64_t total() const;
  /// Returns the range of this rank's rows.
  Range own() const;
};

/// The five conversions between the layouts of a matrix: whole (every rank has all rows), partial (every rank has a
/// summand of all rows) and sharded (every rank has some rows). Collective over the group, except identity and slice.
/// On the host, sums are made in a fixed order of ranks and accumulator precision, and rounded once.
Tensor identity(const Stream& stream, const RowShards& shards, const Tensor& x);
Tensor all_reduce(const Stream& stream, const RowShards& shards, const Tensor& x);      // partial → whole
Tensor all_gather(const Stream& stream, const RowShards& shards, const Tensor& x);      // sharded → whole
Tensor reduce_scatter(const Stream& stream, const RowShards& shards, const Tensor& x);  // partial → sharded
Tensor slice(const Stream& stream, const RowShards& shards, const Tensor& x);           // whole → sharded; a view

/// An operation that applies one conversion in the forward pass and its adjoint in the backward pass.
template <auto Forward, auto Backward>
struct Conjugate {
  RowShards shards;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved&, const Tensor& x) const { return Forward(stream, shards, x); }
  std::array<Tensor, 1> backward(const Stream& stream, Saved&, const Tensor& dy) const {
    return {Backward(stream, shards, dy)};
  }
};

/// Precedes a matrix that is divided by outputs (column-parallel): f of Megatron-LM [Shoeybi et al. 2019]. Each rank's
/// dx is partial.
struct IdentityAllReduce : Conjugate<identity, all_reduce> {};
/// Follows a matrix that is divided by inputs (row-parallel): g of Megatron-LM.
struct AllReduceIdentity : Conjugate<all_reduce, identity> {};
/// The equivalents of f and g if rows are sharded between the matrices: g and ḡ of [Korthikanti et al. 2022].
struct AllGatherReduceScatter : Conjugate<all_gather, reduce_scatter> {};
struct ReduceScatterAllGather : Conjugate<reduce_scatter, all_gather> {};
/// Convert between a layout in which every rank has all rows (and their whole gradients) and sharded rows.
struct SliceAllGather : Conjugate<slice, all_gather> {};
struct AllGatherSlice : Conjugate<all_gather, slice> {};

}  // namespace lyceum
