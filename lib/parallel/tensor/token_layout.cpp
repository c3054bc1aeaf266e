#include "parallel/tensor/token_layout.h"

#include <algorithm>
#include <vector>

namespace lyceum {

TokenLayout::TokenLayout(const ProcessGroup& tensor, bool sequence, std::int64_t tokens, std::int64_t seq_len)
    : TokenLayout(tokens, seq_len) {
  require(seq_len > 0 && tokens % seq_len == 0, "{} tokens are not a whole number of sequences of {}", tokens, seq_len);
  sequence_ = sequence;
  if (tensor.size() > 1) shards_ = RowShards::even(tensor, tokens);
}

TokenLayout::Share TokenLayout::largest_share() const {
  Share most{tokens_, sequences()};
  if (!shards_) return most;
  most = {};
  std::int64_t first = 0;
  for (const std::int64_t tokens : shards_->rows) {
    if (tokens == 0) continue;
    const std::int64_t end = first + tokens;
    most = {std::max(most.tokens, tokens), std::max(most.sequences, (end - 1) / seq_len_ - first / seq_len_ + 1)};
    first = end;
  }
  return most;
}

Variable TokenLayout::to_matrix(Tape& tape, const Variable& x) const {
  if (!shards_) return x;
  return sequence_ ? tape.apply(AllGatherReduceScatter{*shards_}, x) : tape.apply(IdentityAllReduce{*shards_}, x);
}

void TokenLayout::release_matrix(Tape& tape, const Variable& matrix, const Variable& x) const {
  if (shards_ && sequence_) tape.release(matrix, AllGatherReduceScatter{*shards_}, x);
}

Variable TokenLayout::from_matrix(Tape& tape, const Variable& partial) const {
  if (!shards_) return partial;
  return sequence_ ? tape.apply(ReduceScatterAllGather{*shards_}, partial)
                   : tape.apply(AllReduceIdentity{*shards_}, partial);
}

Variable TokenLayout::to_own_tokens(Tape& tape, const Variable& x) const {
  return !shards_ || sequence_ ? x : tape.apply(SliceAllGather{*shards_}, x);
}

Variable TokenLayout::from_own_tokens(Tape& tape, const Variable& y) const {
  return !shards_ || sequence_ ? y : tape.apply(AllGatherSlice{*shards_}, y);
}

Variable TokenLayout::gather_own_tokens(Tape& tape, const Variable& own_rows) const {
  return shards_ ? tape.apply(AllGatherReduceScatter{*shards_}, own_rows) : own_rows;
}

Tensor TokenLayout::gather_own_tokens(const Stream& stream, const Tensor& own_rows) const {
  return shards_ ? all_gather(stream, *shards_, own_rows) : own_rows;
}

Variable TokenLayout::sum_over_ranks(Tape& tape, const Variable& own_rows) const {
  if (!shards_) return own_rows;
  return tape.apply(AllReduceIdentity{RowShards::even(*shards_->group, own_rows.value.shape()[0])}, own_rows);
}

Tensor TokenLayout::of_all_ranks(const Stream& stream, const Tensor& own_rows) const {
  if (!shards_) return own_rows;
  const RowShards equal{.group = shards_->group,
                        .rows = std::vector<std::int64_t>(shards_->rows.size(), own_rows.shape()[0])};
  return all_gather(stream, equal, own_rows);
}

std::optional<Range> TokenLayout::graded() const {
  return shards_ && !sequence_ ? std::optional(shards_->own()) : std::nullopt;
}

}  // namespace lyceum
