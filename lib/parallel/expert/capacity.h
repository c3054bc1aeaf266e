#pragma once

#include "core/tensor.h"
#include "parallel/tensor/token_layout.h"

namespace lyceum {

/// The choices that experts have capacity for, see DropChoices.
struct Capacity {
  double factor;
  std::int64_t experts;
  Tensor choices{};  // f64 [1]: DropChoices'; undefined: as many as an index has columns
  Tensor dropped{};  // i64 [k, experts]: += choices that are dropped; undefined for none
};

/// The choices of this rank's run of tokens within the experts' capacity: i32 [tokens, k], −1 for the others. Ranks
/// that hold parts of the same sequences agree on it. Collective over them. index: as Route gives it.
Tensor within_capacity(const Stream& stream, const TokenLayout& layout, const Capacity& capacity, const Tensor& index);

}  // namespace lyceum
