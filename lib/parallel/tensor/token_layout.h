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

  /// The largest number of tokens, and of sequences in whole or in part, in the range of any rank. The two maxima may
  /// belong to different ranks.
  struct Share {
    std::int64_t tokens, sequences;
  };
  Share largest_share() const;

  /// Converts x from the layout between matrices to the input of a matrix that is divided by outputs.
  Variable to_matrix(Tape& tape, const Variable& x) const;
  /// Releases the result of to_matrix() after its use, if it has separate memory. See Tape::release().
  void release_matrix(Tape& tape, const Variable& matrix, const Variable& x) const;
  /// Converts the partial sums of a matrix that is divided by inputs to the layout between matrices.
  Variable from_matrix(Tape& tape, const Variable& partial) const;
  /// Convert between the layout between matrices and this rank's range of the tokens.
  Variable to_own_tokens(Tape& tape, const Variable& x) const;
  Variable from_own_tokens(Tape& tape, const Variable& y) const;
  /// Gathers on all ranks the rows that each rank has computed for its range. The first overload is differentiable; it
  /// is for work on all tokens that is divided among the ranks, so it sums the gradients of the ranks.
  Variable gather_own_tokens(Tape& tape, const Variable& own_rows) const;
  Tensor gather_own_tokens(const Stream& stream, const Tensor& own_rows) const;
  /// Returns the sum over the group of matrices of one shape, each computed by a rank from its range of the tokens. All
  /// ranks then compute the same from it, so in the backward pass each rank's matrix gets the gradient of the sum as
  /// its own.
  Variable sum_over_ranks(Tape& tape, const Variable& own_rows) const;
  /// Gathers matrices of one shape, each computed by a rank from its range of the tokens: [ranks · rows, cols], in rank
  /// order. Not differentiable.
  Tensor of_all_ranks(const Stream& stream, const Tensor& own_rows) const;
  /// Returns the rows that this rank must count in its weight gradients of operations between matrices, such as norms
  /// (see RmsNorm::graded); nothing if all its rows count. These gradients are summed over the ranks of the group.
  /// Without sequence parallelism all ranks hold the same rows, so each rank counts only its own range.
  std::optional<Range> graded() const;

 private:
  std::int64_t tokens_, seq_len_;
  bool sequence_ = false;
  std::optional<RowShards> shards_;  // none for a single rank
};

}  // namespace lyceum
