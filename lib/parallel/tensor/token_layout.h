#pragma once

#include <optional>

#include "parallel/tensor/collectives.h"

namespace lyceum {

/// How the tokens of one pass lie on the ranks of a tensor group. Matrices that the ranks share work on all tokens;
/// between them each rank holds all tokens too or, with sequence parallelism, a run of them [Korthikanti et al. 2022].
/// What works on tokens one by one and is not cut itself (the routed experts) always gets a run of them a rank.
class TokenLayout {
 public:
  /// Nobody to share with.
  TokenLayout(std::int64_t tokens, std::int64_t seq_len) : tokens_(tokens), seq_len_(seq_len) {}
  /// `tensor` must outlive it. `tokens`: whole sequences of `seq_len`, the same on all ranks of the group.
  TokenLayout(const ProcessGroup& tensor, bool sequence, std::int64_t tokens, std::int64_t seq_len);

  std::int64_t tokens() const { return tokens_; }
  std::int64_t seq_len() const { return seq_len_; }
  std::int64_t sequences() const { return tokens_ / seq_len_; }
  /// This rank's place among those that share the tokens.
  int rank() const { return shards_ ? shards_->group->rank() : 0; }
  /// The run of this rank.
  Range own() const { return shards_ ? shards_->own() : Range{0, tokens_}; }

  /// From between matrices to a matrix cut by its outputs, and from one cut by its inputs back.
  Variable to_matrix(Tape& tape, const Variable& x) const;
  /// After its use, the result of to_matrix() where it has its own memory. See Tape::release().
  void release_matrix(Tape& tape, const Variable& matrix, const Variable& x) const;
  Variable from_matrix(Tape& tape, const Variable& partial) const;
  /// From between matrices to this rank's run, and back.
  Variable to_run(Tape& tape, const Variable& x) const;
  Variable from_run(Tape& tape, const Variable& y) const;
  /// What each rank made of its run, rows of all tokens, for ranks that then share the work on every token.
  Variable gather_runs(Tape& tape, const Variable& of_run) const;
  Tensor gather_runs(const Stream& stream, const Tensor& of_run) const;
  /// The sums over the group of what each rank made of its run, a matrix; every rank then continues with the same.
  Variable sum_of_runs(Tape& tape, const Variable& of_run) const;
  /// What each rank made of its run, matrices of one shape, rank after rank.
  Tensor of_all_ranks(const Stream& stream, const Tensor& of_run) const;
  /// Rows between matrices whose weight gradients fall to this rank, where every rank holds the same rows: see RmsNorm.
  std::optional<Range> graded() const;

 private:
  std::int64_t tokens_, seq_len_;
  bool sequence_ = false;
  std::optional<RowShards> shards_;  // none in a group of one
};

}  // namespace lyceum
