#include "kernels/embedding.h"

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

namespace {

/// Throws an Error unless words [first, first + words) are in the vocabulary and all tokens are.
void require_words(std::string_view kernel, std::span<const std::int32_t> tokens, std::int64_t first,
                   std::int64_t words, std::int64_t vocab) {
  const std::int64_t all = vocab < 0 ? first + words : vocab;
  require(first >= 0 && first + words <= all, "{}: words [{}, {}) are not in a vocabulary of {}", kernel, first,
          first + words, all);
  require_indices(kernel, "tokens", tokens, 0, all);
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const EmbeddingForward<T>& embedding) {
  const std::int64_t rows = embedding.y.rows, cols = embedding.y.cols;
  require_length("EmbeddingForward", "tokens", embedding.tokens, rows);
  require_extents("EmbeddingForward", "table", embedding.table, embedding.table.rows, cols);
  const std::int64_t words = embedding.table.rows;
  require_words("EmbeddingForward", embedding.tokens, embedding.first, words, embedding.vocab);
  parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t word = embedding.tokens[static_cast<std::size_t>(r)] - embedding.first;
      if (word >= 0 && word < words) {
        std::copy_n(embedding.table.row(word), cols, embedding.y.row(r));
      } else {
        std::fill_n(embedding.y.row(r), cols, T(0));
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const EmbeddingWeightGrad<T>& embedding) {
  using A = Accumulator<T>;
  const std::int64_t rows = embedding.dy.rows, cols = embedding.dy.cols;
  require_length("EmbeddingWeightGrad", "tokens", embedding.tokens, rows);
  require_extents("EmbeddingWeightGrad", "d_table", embedding.d_table, embedding.d_table.rows, cols);
  const std::int64_t words = embedding.d_table.rows;
  require_words("EmbeddingWeightGrad", embedding.tokens, embedding.first, words, embedding.vocab);
  // Each thread has a range of columns and adds up all tokens, so the order of summation is that of the tokens.
  const std::int64_t grain = std::max<std::int64_t>(64, rows_per_thread(rows));
  parallel_for(stream, cols, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t word = embedding.tokens[static_cast<std::size_t>(r)] - embedding.first;
      if (word < 0 || word >= words) continue;
      const T* dy = embedding.dy.row(r);
      A* d_table = embedding.d_table.row(word);
#pragma omp simd
      for (std::int64_t c = first; c < last; ++c) d_table[c] += static_cast<A>(dy[c]);
    }
  });
}

LYCEUM_EMBEDDING_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
