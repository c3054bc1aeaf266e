#include "kernels/dropout.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/philox_lanes.h"
#include "kernels/dropout_numbers.h"

namespace lyceum {

namespace {

/// The random words of one token after another.
class WordsOfTokens {
 public:
  WordsOfTokens(const DropoutMask& mask, std::int64_t cols)
      : site_(mask.site),
        step_(static_cast<std::uint32_t>(mask.step[0])),
        key_(dropout_key(mask.seed)),
        words_(static_cast<std::size_t>((cols + row_grain - 1) / row_grain * row_grain)) {}

  /// Computes the words of a position, see random_position(). Returns one per column, which the next call overwrites.
  const std::uint32_t* at(std::int64_t position) {
    const std::array<std::uint32_t, 4> counter = dropout_counter(site_, step_, position, 0);
    const std::uint32_t x = counter[0], y = counter[1], z = counter[2];
    const auto key0 = static_cast<std::uint32_t>(key_), key1 = static_cast<std::uint32_t>(key_ >> 32);
    std::uint32_t* const to = words_.data();
    const std::int64_t quads = std::ssize(words_) / 4;
    for (std::int64_t quad = 0; quad < quads; quad += philox_lanes) {
#pragma omp simd
      for (std::int64_t l = 0; l < philox_lanes; ++l) {
        const PhiloxWords made = philox_in_lane({x, y, z, static_cast<std::uint32_t>(quad + l)}, key0, key1);
        std::uint32_t* const quad_words = to + 4 * (quad + l);
        quad_words[0] = made.a;
        quad_words[1] = made.b;
        quad_words[2] = made.c;
        quad_words[3] = made.d;
      }
    }
    return to;
  }

 private:
  static constexpr std::int64_t row_grain = 4 * philox_lanes;  // whole vectors, also at the end of a row
  std::int64_t site_;
  std::uint32_t step_;
  std::uint64_t key_;
  std::vector<std::uint32_t> words_;
};

/// Calls f(row, left) for rows [first, last) in order. left[c] > 0 says that the element in column c is dropped.
template <class F>
void for_each_row_of_runs(const DropoutMask& mask, double rate, std::int64_t cols, std::int64_t first,
                          std::int64_t last, const F& f) {
  WordsOfTokens words(mask, cols);
  const std::uint32_t begins = run_threshold(rate, mask.block);
  const auto block = static_cast<std::int32_t>(mask.block);
  std::vector<std::int32_t> left(static_cast<std::size_t>(cols));
  std::int32_t* const runs = left.data();
  const auto pass = [&](std::int64_t position) {
    const std::uint32_t* const word = words.at(position);
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) runs[c] = next_in_run(runs[c], word[c], begins, block);
  };
  for (std::int64_t r = first; r < last; ++r) {
    const std::int64_t token = mask.first + r, position = random_position(mask, token);
    if (r == first || begins_sequence(mask, token)) {
      std::ranges::fill(left, 0);
      for (std::int64_t before = position - (mask.block - 1); before < position; ++before) pass(before);
    }
    pass(position);
    f(r, runs);
  }
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const ApplyDropout<T>& dropout) {
  using A = Accumulator<T>;
  require_fitting(dropout);
  const DropoutMask& mask = dropout.mask;
  const std::int64_t cols = dropout.y.cols;
  const A scale = static_cast<A>(1 / (1 - dropout.rate));
  const std::uint32_t threshold = run_threshold(dropout.rate, 1);
  parallel_for(stream, dropout.y.rows, rows_per_thread(4 * cols), [&](std::int64_t first, std::int64_t last) {
    const auto multiply = [&](std::int64_t r, const auto& is_dropped) {
      const T* const x = dropout.x.row(r);
      T* const y = dropout.y.row(r);
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        y[c] = round_to<T>(static_cast<A>(x[c]) * (is_dropped(c) ? A{0} : scale));
      }
    };
    if (mask.block > 1) {
      return for_each_row_of_runs(mask, dropout.rate, cols, first, last, [&](std::int64_t r, const std::int32_t* left) {
        multiply(r, [&](std::int64_t c) { return left[c] > 0; });
      });
    }
    WordsOfTokens words(mask, cols);
    for (std::int64_t r = first; r < last; ++r) {
      const std::uint32_t* const word = words.at(mask.first + r);
      multiply(r, [&](std::int64_t c) { return word[c] < threshold; });
    }
  });
}

template <class T>
void run(const CpuStream& stream, const ApplyConcreteDropout<T>& dropout) {
  using A = Accumulator<T>;
  require_fitting(dropout);
  const std::int64_t cols = dropout.y.cols;
  const LearntRate<A> rate(static_cast<A>(dropout.logit[0]));
  parallel_for(stream, dropout.y.rows, rows_per_thread(6 * cols), [&](std::int64_t first, std::int64_t last) {
    WordsOfTokens words(dropout.mask, cols);
    for (std::int64_t r = first; r < last; ++r) {
      const std::uint32_t* const word = words.at(dropout.mask.first + r);
      const T* const x = dropout.x.row(r);
      T* const y = dropout.y.row(r);
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        y[c] = round_to<T>(static_cast<A>(x[c]) * (rate.kept(word[c]) * rate.scale));
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const ConcreteDropoutGrad<T>& grad) {
  using A = Accumulator<T>;
  require_fitting(grad);
  const std::int64_t cols = grad.x.cols;
  const LearntRate<A> rate(static_cast<A>(grad.logit[0]));
  parallel_for(stream, grad.x.rows, rows_per_thread(6 * cols), [&](std::int64_t first, std::int64_t last) {
    WordsOfTokens words(grad.mask, cols);
    for (std::int64_t r = first; r < last; ++r) {
      const std::uint32_t* const word = words.at(grad.mask.first + r);
      const T *const x = grad.x.row(r), *const dy = grad.dy.row(r);
      A sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t c = 0; c < cols; ++c) {
        const A kept = rate.kept(word[c]);
        sum += static_cast<A>(dy[c]) * static_cast<A>(x[c]) * kept * rate.slope(kept);
      }
      grad.d_logit[static_cast<std::size_t>(r)] = sum * rate.scale;
    }
  });
}

template <class T>
void run(const CpuStream&, const ConcreteRegulariser<T>& regulariser) {
  require_fitting(regulariser);
  compute(regulariser, static_cast<Accumulator<T>>(regulariser.logit[0]));
}

template <class T>
void run(const CpuStream&, const ConcreteRegulariserBackward<T>& backward) {
  require_fitting(backward);
  compute(backward, static_cast<Accumulator<T>>(backward.logit[0]));
}

LYCEUM_DROPOUT_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
