#include "parallel/expert/choice_heads.h"

#include <utility>

#include "kernels/permute.h"
#include "parallel/expert/gather_rows.h"

namespace lyceum {

namespace {

Tensor to_tokens(const Stream& stream, const ChoiceHeads& heads, const Tensor& rows) {
  const std::int64_t width = rows.shape()[1], parts = rows.shape()[0] * heads.groups;
  return gather_rows(stream, rows.reshaped({parts, width / heads.groups}), heads.in_rows)
      .reshaped({heads.rows->tokens(), heads.rows->copies.top_k * width});
}

Tensor to_rows(const Stream& stream, const ChoiceHeads& heads, const Tensor& tokens) {
  const std::int64_t width = tokens.shape()[1] / heads.rows->copies.top_k, parts = heads.in_rows.size();
  return gather_rows(stream, tokens.reshaped({parts, width / heads.groups}), heads.in_tokens)
      .reshaped({heads.rows->copies.pair_of_row.size(), width});
}

}  // namespace

ChoiceHeads::ChoiceHeads(const Stream& stream, std::shared_ptr<const ExpertRows> of, std::int64_t groups)
    : rows(std::move(of)),
      groups(groups),
      in_rows(Tensor::empty(stream, DType::i64, {rows->copies.row_of_pair.size() * groups})),
      in_tokens(Tensor::empty(stream, DType::i64, {rows->copies.pair_of_row.size() * groups})) {
  launch(stream, SplitPairs{.slot_of_pair = rows->copies.row_of_pair.span<const std::int64_t>(),
                            .pair_of_slot = rows->copies.pair_of_row.span<const std::int64_t>(),
                            .k = rows->copies.top_k,
                            .parts = groups,
                            .in_slots = in_rows.span<std::int64_t>(),
                            .by_token = in_tokens.span<std::int64_t>()});
}

Tensor HeadsOfChoices::forward(const Stream& stream, Saved&, const Tensor& rows) const {
  return to_tokens(stream, *heads, rows);
}

std::array<Tensor, 1> HeadsOfChoices::backward(const Stream& stream, Saved&, const Tensor& d_tokens) const {
  return {to_rows(stream, *heads, d_tokens)};
}

Tensor RowsOfHeads::forward(const Stream& stream, Saved&, const Tensor& tokens) const {
  return to_rows(stream, *heads, tokens);
}

std::array<Tensor, 1> RowsOfHeads::backward(const Stream& stream, Saved&, const Tensor& d_rows) const {
  return {to_tokens(stream, *heads, d_rows)};
}

}  // namespace lyceum
