#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// y[t] = table[tokens[t]].
template <class T>
struct EmbeddingForward {
  std::span<const std::int32_t> tokens;
  Matrix<const T> table;  // [vocab, hidden]
  Matrix<T> y;            // [tokens, hidden]
};

/// d_table[tokens[t]] += dy[t], in the order of t.
template <class T>
struct EmbeddingWeightGrad {
  std::span<const std::int32_t> tokens;
  Matrix<const T> dy;              // [tokens, hidden]
  Matrix<Accumulator<T>> d_table;  // [vocab, hidden]
};

template <class T>
void run(const CpuStream& stream, const EmbeddingForward<T>& embedding);
template <class T>
void run(const CpuStream& stream, const EmbeddingWeightGrad<T>& embedding);

}  // namespace lyceum
