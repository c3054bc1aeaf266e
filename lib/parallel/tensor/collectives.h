#pragma once

#include <vector>

#include "autograd/tape.h"
#include "core/range.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Rows of a matrix [rows, cols] that the ranks of a group share: rank r holds rows[r] of them, in rank order.
struct RowShards {
  const ProcessGroup* group;
  std::vector<std::int64_t> rows;  // [ranks]
  bool routed = false;             // whether they depend on the data

  /// As even as the number allows.
  static RowShards even(const ProcessGroup& group, std::int64_t rows);
  std::int64_t total() const;
  /// This rank's rows.
  Range own() const;
};

/// The five moves between the layouts of a matrix: whole on every rank, partial sums on every rank, rows shared out.
/// Sums are made in rank order and accumulator precision, and rounded once.
Tensor identity(const Stream& stream, const RowShards& shards, const Tensor& x);
Tensor all_reduce(const Stream& stream, const RowShards& shards, const Tensor& x);      // partial → whole
Tensor all_gather(const Stream& stream, const RowShards& shards, const Tensor& x);      // shared out → whole
Tensor reduce_scatter(const Stream& stream, const RowShards& shards, const Tensor& x);  // partial → shared out
Tensor slice(const Stream& stream, const RowShards& shards, const Tensor& x);           // whole → shared out, no copy

/// An operation that makes one move forwards and another one backwards.
template <auto Forward, auto Backward>
struct Conjugate {
  RowShards shards;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved&, const Tensor& x) const { return Forward(stream, shards, x); }
  std::array<Tensor, 1> backward(const Stream& stream, Saved&, const Tensor& dy) const {
    return {Backward(stream, shards, dy)};
  }
};

/// Before a matrix that is cut by its outputs: f of Megatron-LM [Shoeybi et al. 2019], each rank's dx being partial.
struct IdentityAllReduce : Conjugate<identity, all_reduce> {};
/// After a matrix that is cut by its inputs: g of Megatron-LM.
struct AllReduceIdentity : Conjugate<all_reduce, identity> {};
/// f and g where rows are shared out between the matrices: ḡ and its transpose [Korthikanti et al. 2022].
struct AllGatherReduceScatter : Conjugate<all_gather, reduce_scatter> {};
struct ReduceScatterAllGather : Conjugate<reduce_scatter, all_gather> {};
/// Between what every rank holds whole, gradients too, and what works on shares of the rows.
struct SliceAllGather : Conjugate<slice, all_gather> {};
struct AllGatherSlice : Conjugate<all_gather, slice> {};

}  // namespace lyceum
