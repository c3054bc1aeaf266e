#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// y[t] = table[tokens[t] − first]. The table may be a slice of the vocabulary (words [first, first + words)); y[t] is
/// zero for tokens outside it. Throws an Error if a token is not in [0, vocab).
template <class T>
struct EmbeddingForward {
  std::span<const std::int32_t> tokens;  // [tokens]
  Matrix<const T> table;                 // [words, hidden]
  Matrix<T> y;                           // [tokens, hidden]
  std::int64_t first = 0;                // word of the table's first row
  std::int64_t vocab = -1;               // size of the whole vocabulary; −1: first + words
};

/// d_table[tokens[t] − first] += dy[t], in the order of t. Tokens outside the slice add nothing.
template <class T>
struct EmbeddingWeightGrad {
  std::span<const std::int32_t> tokens;  // [tokens]
  Matrix<const T> dy;                    // [tokens, hidden]
  Matrix<Accumulator<T>> d_table;        // [words, hidden]
  std::int64_t first = 0;                // word of the table's first row
  std::int64_t vocab = -1;               // size of the whole vocabulary; −1: first + words
};

template <class T>
void run(const CpuStream& stream, const EmbeddingForward<T>& embedding);
template <class T>
void run(const CpuStream& stream, const EmbeddingWeightGrad<T>& embedding);

template <class T>
void run(const CudaStream& stream, const EmbeddingForward<T>& embedding);
template <class T>
void run(const CudaStream& stream, const EmbeddingWeightGrad<T>& embedding);

#define LYCEUM_EMBEDDING_KERNELS(INSTANCE)  \
  LYCEUM_FLOATS(INSTANCE, EmbeddingForward) \
  LYCEUM_FLOATS(INSTANCE, EmbeddingWeightGrad)

}  // namespace lyceum
