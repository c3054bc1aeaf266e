#include "kernels/selection.h"

#include <algorithm>

namespace lyceum {

template <class A>
void run(const CpuStream& stream, const NormalizeGates<A>& normalize) {
  const Matrix<A> gates = normalize.gates;
#pragma omp parallel for num_threads(stream.threads()) schedule(static)
  for (std::int64_t t = 0; t < gates.rows; ++t) {
    A* row = gates.row(t);
    A sum = 0;
    for (std::int64_t j = 0; j < gates.cols; ++j) sum += row[j];
    for (std::int64_t j = 0; j < gates.cols; ++j) row[j] /= sum;
    normalize.sums[static_cast<std::size_t>(t)] = sum;
  }
}

template <class A>
void run(const CpuStream& stream, const SelectionBackward<A>& selection) {
  const Matrix<const A> gates = selection.gates, d_gates = selection.d_gates;
#pragma omp parallel for num_threads(stream.threads()) schedule(static)
  for (std::int64_t t = 0; t < gates.rows; ++t) {
    A* d_scores = selection.d_scores.row(t);
    std::fill_n(d_scores, selection.d_scores.cols, A{0});
    A mean = 0, sum = 1;  // gates g = v / Σv: dv_j = (dg_j − Σ_i g_i dg_i) / Σv
    if (!selection.sums.empty()) {
      for (std::int64_t j = 0; j < gates.cols; ++j) mean += gates.row(t)[j] * d_gates.row(t)[j];
      sum = selection.sums[static_cast<std::size_t>(t)];
    }
    for (std::int64_t j = 0; j < gates.cols; ++j) {
      d_scores[selection.index.row(t)[j]] = (d_gates.row(t)[j] - mean) / sum;
    }
  }
}

template <class A>
void run(const CpuStream& stream, const SequenceLoad<A>& load) {
  const std::int64_t experts = load.scores.cols;
#pragma omp parallel for num_threads(stream.threads()) schedule(static)
  for (std::int64_t s = 0; s < load.count.rows; ++s) {
    A* count = load.count.row(s);
    A* mean = load.mean_probability.row(s);
    std::fill_n(count, experts, A{0});
    std::fill_n(mean, experts, A{0});
    const std::int64_t begin = std::max<std::int64_t>(0, s * load.seq_len - load.first);
    const std::int64_t end = std::min(load.scores.rows, (s + 1) * load.seq_len - load.first);
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t j = 0; j < load.index.cols; ++j) count[load.index.row(t)[j]] += 1;
      const A* scores = load.scores.row(t);
#pragma omp simd
      for (std::int64_t i = 0; i < experts; ++i) mean[i] += scores[i];
    }
    for (std::int64_t i = 0; i < experts; ++i) mean[i] /= static_cast<A>(load.seq_len);
  }
}

template <class A>
void run(const CpuStream& stream, const SpreadOverSequence<A>& spread) {
#pragma omp parallel for num_threads(stream.threads()) schedule(static)
  for (std::int64_t t = 0; t < spread.d_scores.rows; ++t) {
    std::copy_n(spread.slope.row((spread.first + t) / spread.seq_len), spread.d_scores.cols, spread.d_scores.row(t));
  }
}

template void run(const CpuStream&, const NormalizeGates<float>&);
template void run(const CpuStream&, const NormalizeGates<double>&);
template void run(const CpuStream&, const SelectionBackward<float>&);
template void run(const CpuStream&, const SelectionBackward<double>&);
template void run(const CpuStream&, const SequenceLoad<float>&);
template void run(const CpuStream&, const SequenceLoad<double>&);
template void run(const CpuStream&, const SpreadOverSequence<float>&);
template void run(const CpuStream&, const SpreadOverSequence<double>&);

}  // namespace lyceum
