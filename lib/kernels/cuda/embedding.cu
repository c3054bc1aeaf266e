#include "core/allocator.h"
#include "kernels/checks.h"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scan.cuh"
#include "kernels/embedding.h"

namespace lyceum {

namespace {

constexpr int embedding_threads = 128;
constexpr int scan_threads = 1024;
// Lists of one word's tokens up to this length are sorted by comparing all pairs.
constexpr std::int64_t longest_sorted = 256;
constexpr int rows_ahead = 8;  // rows that a thread loads before it adds them

template <int width, class T>
__global__ void __launch_bounds__(embedding_threads)
    embedding_forward(EmbeddingForward<T> embedding, IndexCheck vocabulary) {
  const std::int64_t cols = embedding.y.cols;
  for (std::int64_t r = blockIdx.x; r < embedding.y.rows; r += gridDim.x) {
    const std::int64_t word = embedding.tokens[r] - embedding.first;
    const bool here = vocabulary.passes(embedding.tokens[r]) && word >= 0 && word < embedding.table.rows;
    for (std::int64_t c = threadIdx.x * width; c < cols; c += embedding_threads * width) {
      Pack<T, width> values;
      for (int e = 0; e < width; ++e) values[e] = T{};
      if (here) values = load<width>(embedding.table.row(word) + c);
      store(embedding.y.row(r) + c, values);
    }
  }
}

/// The positions of each word's tokens in ascending order: those of word w are sorted[begin[w] … begin[w + 1]). Lists
/// are built with atomic additions of integers and then sorted, so that the result does not depend on the order of
/// execution.
struct WordLists {
  std::int32_t* count;   // [words]; list_tokens() reuses it as the fill level of each list
  std::int64_t* begin;   // [words + 1]
  std::int32_t* mixed;   // [tokens]
  std::int32_t* sorted;  // [tokens]
  std::int64_t words, first;
};

__device__ bool find_word(const WordLists& lists, std::int32_t token, std::int64_t& word) {
  word = token - lists.first;
  return word >= 0 && word < lists.words;
}

__global__ void __launch_bounds__(embedding_threads)
    count_words(WordLists lists, std::span<const std::int32_t> tokens, IndexCheck vocabulary) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * embedding_threads + threadIdx.x;
  std::int64_t word;
  if (t >= static_cast<std::int64_t>(tokens.size()) || !vocabulary.passes(tokens[t])) return;
  if (find_word(lists, tokens[t], word)) atomicAdd(lists.count + word, 1);
}

/// Computes the begin of each word's list, with one thread block.
__global__ void __launch_bounds__(scan_threads) compute_begins(WordLists lists) {
  std::int64_t placed = 0;
  for (std::int64_t base = 0; base < lists.words; base += scan_threads) {
    const std::int64_t word = base + threadIdx.x;
    std::int64_t total = 0;
    const std::int64_t before =
        exclusive_sum<scan_threads>(word < lists.words ? std::int64_t{lists.count[word]} : 0, total);
    if (word < lists.words) {
      lists.begin[word] = placed + before;
      lists.count[word] = 0;
    }
    placed += total;
  }
  if (threadIdx.x == 0) lists.begin[lists.words] = placed;
}

__global__ void __launch_bounds__(embedding_threads)
    list_tokens(WordLists lists, std::span<const std::int32_t> tokens) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * embedding_threads + threadIdx.x;
  std::int64_t word;
  if (t >= static_cast<std::int64_t>(tokens.size()) || !find_word(lists, tokens[t], word)) return;
  lists.mixed[lists.begin[word] + atomicAdd(lists.count + word, 1)] = static_cast<std::int32_t>(t);
}

/// Sorts the lists, one thread block per word. The position of a token is the number of smaller entries in its list.
/// That takes quadratic time, so a long list is instead rebuilt by scanning all tokens, which are in order.
__global__ void __launch_bounds__(embedding_threads) sort_lists(WordLists lists, std::span<const std::int32_t> tokens) {
  const std::int64_t begin = lists.begin[blockIdx.x], end = lists.begin[blockIdx.x + 1];
  if (end - begin > longest_sorted) {
    const std::int64_t token = lists.first + blockIdx.x, count = static_cast<std::int64_t>(tokens.size());
    std::int64_t placed = begin;
    for (std::int64_t base = 0; base < count && placed < end; base += embedding_threads) {
      const std::int64_t t = base + threadIdx.x;
      const bool here = t < count && tokens[t] == token;
      std::int64_t total = 0;
      const std::int64_t before = exclusive_sum<embedding_threads>(here, total);
      if (here) lists.sorted[placed + before] = static_cast<std::int32_t>(t);
      placed += total;
    }
    return;
  }
  for (std::int64_t i = begin + threadIdx.x; i < end; i += embedding_threads) {
    const std::int32_t token = lists.mixed[i];
    std::int64_t position = begin;
    for (std::int64_t j = begin; j < end; ++j) position += lists.mixed[j] < token;
    lists.sorted[position] = token;
  }
}

/// One thread block per word and embedding_threads packs of columns. Each thread adds its columns of the rows of the
/// word's tokens, in order.
template <int width, class T>
__global__ void __launch_bounds__(embedding_threads) add_gradients(EmbeddingWeightGrad<T> embedding, WordLists lists) {
  using A = Accumulator<T>;
  const std::int64_t word = blockIdx.x, begin = lists.begin[word], end = lists.begin[word + 1];
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.y) * embedding_threads + threadIdx.x) * width;
  if (begin == end || c >= embedding.dy.cols) return;
  A* d_table = embedding.d_table.row(word) + c;
  auto sum = load<width>(d_table);
  std::int64_t i = begin;
  for (; i + rows_ahead <= end; i += rows_ahead) {
    Pack<T, width> dy[rows_ahead];
    for (int r = 0; r < rows_ahead; ++r) dy[r] = load<width>(embedding.dy.row(lists.sorted[i + r]) + c);
    for (int r = 0; r < rows_ahead; ++r) {
      for (int e = 0; e < width; ++e) sum[e] += widen(dy[r][e]);
    }
  }
  for (; i < end; ++i) {
    const auto dy = load<width>(embedding.dy.row(lists.sorted[i]) + c);
    for (int e = 0; e < width; ++e) sum[e] += widen(dy[e]);
  }
  store(d_table, sum);
}

std::int64_t vocabulary_of(std::string_view kernel, std::int64_t first, std::int64_t words, std::int64_t vocab) {
  const std::int64_t all = vocab < 0 ? first + words : vocab;
  require(first >= 0 && first + words <= all, "{}: words [{}, {}) are not in a vocabulary of {}", kernel, first,
          first + words, all);
  return all;
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const EmbeddingForward<T>& embedding) {
  const std::int64_t rows = embedding.y.rows, cols = embedding.y.cols;
  require_length("EmbeddingForward", "tokens", embedding.tokens, rows);
  require_extents("EmbeddingForward", "table", embedding.table, embedding.table.rows, cols);
  const std::int64_t vocab = vocabulary_of("EmbeddingForward", embedding.first, embedding.table.rows, embedding.vocab);
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(embedding.table, width) && fits_packs(embedding.y, width);
  start(stream, "EmbeddingForward", packed ? embedding_forward<width, T> : embedding_forward<1, T>, blocks_for(rows),
        embedding_threads, embedding, IndexCheck(stream, "EmbeddingForward", "tokens", 0, vocab));
}

template <class T>
void run(const CudaStream& stream, const EmbeddingWeightGrad<T>& embedding) {
  using A = Accumulator<T>;
  const std::int64_t rows = embedding.dy.rows, cols = embedding.dy.cols, words = embedding.d_table.rows;
  require_length("EmbeddingWeightGrad", "tokens", embedding.tokens, rows);
  require_extents("EmbeddingWeightGrad", "d_table", embedding.d_table, words, cols);
  require(rows < std::int64_t{1} << 31, "EmbeddingWeightGrad: {} tokens are too many, at most 2^31 - 1 are supported",
          rows);
  const std::int64_t vocab = vocabulary_of("EmbeddingWeightGrad", embedding.first, words, embedding.vocab);
  const auto buffer = [&](std::int64_t count, std::size_t size) {
    return stream.memory().allocate_zeros(static_cast<std::size_t>(count) * size, MemoryKind::buffers);
  };
  const auto count = buffer(words, 4), begin = buffer(words + 1, 8), mixed = buffer(rows, 4), sorted = buffer(rows, 4);
  const WordLists lists{.count = reinterpret_cast<std::int32_t*>(count.get()),
                        .begin = reinterpret_cast<std::int64_t*>(begin.get()),
                        .mixed = reinterpret_cast<std::int32_t*>(mixed.get()),
                        .sorted = reinterpret_cast<std::int32_t*>(sorted.get()),
                        .words = words,
                        .first = embedding.first};
  constexpr const char* name = "EmbeddingWeightGrad";
  const auto token_blocks = static_cast<unsigned>((rows + embedding_threads - 1) / embedding_threads);
  start(stream, name, count_words, token_blocks, embedding_threads, lists, embedding.tokens,
        IndexCheck(stream, name, "tokens", 0, vocab));
  start(stream, name, compute_begins, 1, scan_threads, lists);
  start(stream, name, list_tokens, token_blocks, embedding_threads, lists, embedding.tokens);
  start(stream, name, sort_lists, static_cast<unsigned>(words), embedding_threads, lists, embedding.tokens);
  constexpr int width = pack_width<A>;
  const bool packed = fits_packs(embedding.dy, width) && fits_packs(embedding.d_table, width);
  const std::int64_t tile = packed ? embedding_threads * width : embedding_threads;
  const dim3 grid(static_cast<unsigned>(words), static_cast<unsigned>((cols + tile - 1) / tile));
  start(stream, name, packed ? add_gradients<width, T> : add_gradients<1, T>, grid, embedding_threads, embedding,
        lists);
}

LYCEUM_EMBEDDING_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
