#pragma once

#include "core/tensor.h"
#include "parallel/tensor/token_layout.h"

namespace lyceum {

/// Limits the number of choices per expert and sequence to ⌈factor · k · seq_len / experts⌉, see DropChoices.
struct Capacity {
  double factor;
  std::int64_t experts;
  Tensor choices{};  // f64 [1]: k of the formula, see DropChoices::choices; undefined: columns of `index`
  Tensor dropped{};  // i64 [k, experts]: += number of dropped j-th choices of each expert; optional
};

/// Returns the choices of this rank's tokens with those beyond the experts' capacity replaced by -1: i32 [tokens, k].
/// Collective over the ranks of `layout`, which take the tokens of the same sequences on other ranks into account.
/// `index`: i32 [tokens, k], see Route.
Tensor within_capacity(const Stream& stream, const TokenLayout& layout, const Capacity& capacity, const Tensor& index);

}  // namespace lyceum
