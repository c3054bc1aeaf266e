#pragma once

#include <optional>

#include "parallel/tensor/collectives.h"

namespace lyceum {

/// The distribution of the tokens of one pass over the ranks of a tensor group. Matrices that are divided among the
/// ranks read all tokens. Between the matrices, each rank holds all tokens or, with sequence parallelism, a range of
/// them [Korthikanti et al. 2022]. Operations per token that are not divided (the routed experts) always process this
/// rank's range.
class TokenLayout {
 public:
  /// For a single rank.
  TokenLayout(std::int64_t tokens, std::int64_t seq_len) : tokens_(tokens), seq_len_(seq_len) {}
  /// `tensor` must outlive the object. `sequence`: use sequence parallelism. `tokens`: whole sequences of `seq_len`
  /// tokens; the same on all ranks of the group.
  TokenLayout(const ProcessGroup& tensor, bool sequence, std::int64_t tokens, std::int64_t seq_len);

  std::int64_t tokens() const { return tokens_; }
  std::int64_t seq_len() const { return seq_len_; }
  std::int64_t sequences() const { return tokens_ / seq_len_; }
  /// Returns this rank's index in the group.
  int rank() const { return shards_ ? shards_->group->rank() : 0; }
  /// Returns this rank's range of the tokens.
  Range own() const { return shards_ ? shards_->own() : Range{0, tokens_}; }

  /// Converts x from the layout between matrices to the input of a matrix that is divided by outputs.
  Variable to_matrix(Tape& tape, const Variable& x) const;
  /// Releases the result of to_matrix() after its use, if it has separate memory. See Tape::release().
  void release_matrix(Tape& tape, const Variable& matrix, const Variable& x) const;
  /// Converts the partial sums of a matrix that is divided by inputs to the layout between matrices.
  Variable from_matrix(Tape& tape, const Variable& partial) const;
  /// Convert between the layout between matrices and this rank's range of the tokens.
  Variable to_own_tokens(Tape& tape, const Variable& x) const;
  Variable from_own_tokens(Tape& tape, const Variable& y) const;
  /// Gathers the rows that each rank has computed for its range, on all ranks, which then divide the work on every
  /// token. The first overload is differentiable: gradients of the ranks are summed.
  Variable gather_own_tokens(Tape& tape, const Variable& own_rows) const;
  Tensor gather_own_tokens(const Stream& stream, const Tensor& own_rows) const;
  /// Sums matrices of one shape, each computed by a rank for its range, over the group. All ranks then continue with
  /// the same value.
  Variable sum_over_ranks(Tape& tape, const Variable& own_rows) const;
  /// Gathers matrices of one shape, each computed by a rank for its range: [ranks · rows, cols], in rank order.
  Tensor of_all_ranks(const Stream& stream, const Tensor& own_rows) const;
  /// Returns the rows for which this rank computes the weight gradients of operations between matrices, if every rank
  /// holds the same rows (see RmsNorm::graded); nothing if it computes them for all its rows.
  std::optional<Range> graded() const;

 private:
  std::int64_t tokens_, seq_len_;
  bool sequence_ = false;
  std::optional<RowShards> shards_;  // none for a single rank
};

}  // namespace lyceum
