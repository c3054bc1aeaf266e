#include "kernels/router.h"

#include <cmath>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/row_sums.h"

namespace lyceum {

namespace {

/// Whether a score stands before another one of a lower index: only if larger, or a number before a NaN.
template <class A>
bool beats(A score, A other) {
  return score > other || (std::isnan(other) && !std::isnan(score));
}

/// Keeps the `k` best so far sorted while walking the row; most scores fail the first comparison.
template <class A>
void top_of_row(const A* scores, std::int64_t cols, std::int64_t k, std::int32_t* index, A* value) {
  for (std::int64_t c = 0; c < cols; ++c) {
    const A score = scores[c];
    if (c >= k && !beats(score, value[k - 1])) continue;
    std::int64_t place = std::min(c, k - 1);
    for (; place > 0 && beats(score, value[place - 1]); --place) {
      value[place] = value[place - 1];
      index[place] = index[place - 1];
    }
    value[place] = score;
    index[place] = static_cast<std::int32_t>(c);
  }
}

}  // namespace

template <class A>
void run(const CpuStream& stream, const SoftmaxForward<A>& softmax) {
  const std::int64_t rows = softmax.x.rows, cols = softmax.x.cols;
  require_extents("SoftmaxForward", "y", softmax.y, rows, cols);
  if (!softmax.log_sum_exp.empty()) require_length("SoftmaxForward", "log_sum_exp", softmax.log_sum_exp, rows);
  parallel_for(stream, rows, rows_a_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const A* x = softmax.x.row(r);
      A* y = softmax.y.row(r);
      const A largest = row_maximum(x, cols);
      A sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t c = 0; c < cols; ++c) {
        y[c] = fast_exp(x[c] - largest);
        sum += y[c];
      }
      const A inverse = A{1} / sum;
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) y[c] *= inverse;
      if (!softmax.log_sum_exp.empty()) softmax.log_sum_exp[static_cast<std::size_t>(r)] = largest + std::log(sum);
    }
  });
}

template <class A>
void run(const CpuStream& stream, const SoftmaxBackward<A>& softmax) {
  const std::int64_t rows = softmax.y.rows, cols = softmax.y.cols;
  require_extents("SoftmaxBackward", "dy", softmax.dy, rows, cols);
  require_extents("SoftmaxBackward", "dx", softmax.dx, rows, cols);
  parallel_for(stream, rows, rows_a_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const A* y = softmax.y.row(r);
      const A* dy = softmax.dy.row(r);
      A* dx = softmax.dx.row(r);
      A dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t c = 0; c < cols; ++c) dot += dy[c] * y[c];
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) dx[c] = y[c] * (dy[c] - dot);
    }
  });
}

template <class A>
void run(const CpuStream& stream, const TopK<A>& top) {
  const std::int64_t rows = top.scores.rows, cols = top.scores.cols, k = top.index.cols;
  require_extents("TopK", "index", top.index, rows, k);
  require_extents("TopK", "value", top.value, rows, k);
  require(k <= cols, "TopK: {} experts a token out of {}", k, cols);
  if (k == 0) return;
  parallel_for(stream, rows, rows_a_thread(8 * cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      top_of_row(top.scores.row(r), cols, k, top.index.row(r), top.value.row(r));
    }
  });
}

template <class A>
void run(const CpuStream& stream, const EvenChoices<A>& even) {
  const std::int64_t rows = even.scores.rows, experts = even.scores.cols, k = even.index.cols;
  require_extents("EvenChoices", "index", even.index, rows, k);
  require_extents("EvenChoices", "value", even.value, rows, k);
  require(k <= experts, "EvenChoices: {} experts a token out of {}", k, experts);
  parallel_for(stream, rows, rows_a_thread(k), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int64_t expert = (t * k + j) % experts;
        even.index.row(t)[j] = static_cast<std::int32_t>(expert);
        even.value.row(t)[j] = even.scores.row(t)[expert];
      }
    }
  });
}

void run(const CpuStream& stream, const CountChoices& count) {
  const std::int64_t rows = count.index.rows, k = count.index.cols;
  require_extents("CountChoices", "counts", count.counts, k, count.counts.cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    require_indices("CountChoices", "index", std::span(count.index.row(r), static_cast<std::size_t>(k)), 0,
                    count.counts.cols);
  }
  parallel_for(stream, k, rows_a_thread(rows), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = first; j < last; ++j) ++count.counts.row(j)[count.index.row(r)[j]];
    }
  });
}

template <class A>
void run(const CpuStream&, const SumColumns<A>& sum) {
  require_length("SumColumns", "sums", sum.sums, sum.x.cols);
  for (std::int64_t r = 0; r < sum.x.rows; ++r) {
    for (std::int64_t c = 0; c < sum.x.cols; ++c) sum.sums[static_cast<std::size_t>(c)] += sum.x.row(r)[c];
  }
}

template void run(const CpuStream&, const SoftmaxForward<float>&);
template void run(const CpuStream&, const SoftmaxForward<double>&);
template void run(const CpuStream&, const SoftmaxBackward<float>&);
template void run(const CpuStream&, const SoftmaxBackward<double>&);
template void run(const CpuStream&, const TopK<float>&);
template void run(const CpuStream&, const TopK<double>&);
template void run(const CpuStream&, const EvenChoices<float>&);
template void run(const CpuStream&, const EvenChoices<double>&);
template void run(const CpuStream&, const SumColumns<float>&);
template void run(const CpuStream&, const SumColumns<double>&);

}  // namespace lyceum
