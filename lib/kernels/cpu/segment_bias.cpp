#include "kernels/segment_bias.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/segment_bias_checks.h"

namespace lyceum {

namespace {

/// Throws an Error unless the columns with a bias are in the rows of every segment.
void require_columns(std::string_view kernel, const Range& columns, std::span<const std::int64_t> widths) {
  for (const std::int64_t width : widths) {
    require(columns.end() <= width, "{}: columns to {} do not exist in rows of {}", kernel, columns.end(), width);
  }
}

template <class T>
void require_sources(std::string_view kernel, const PickedRows<T>& picked, const Segments& segments) {
  if (!picked) return;
  require(std::ssize(picked.source) >= segments.total(), "{}: there are {} sources for {} rows", kernel,
          picked.source.size(), segments.total());
  require_indices(kernel, "source", picked.source, std::numeric_limits<std::int64_t>::min(),
                  picked.x.rows * picked.divisor);
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const AddSegmentBias<T>& add) {
  using A = Accumulator<T>;
  require_segments("AddSegmentBias", add, add.y, add.bias);
  require_columns("AddSegmentBias", add.columns, add.y.width);
  for (std::int64_t e = 0; e < add.segments.count(); ++e) {
    const auto i = static_cast<std::size_t>(e);
    const std::int64_t cols = bias_width(add.columns, add.y.width[i]);
    const T* bias = add.bias[i];
    const Matrix<T> rows = add.y.segment(add.segments, e);
    for_each_row(stream, add.segments.rows[i], cols, [&](std::int64_t r) {
      T* y = rows.row(r) + add.columns.first;
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) y[c] = round_to<T>(static_cast<A>(y[c]) + static_cast<A>(bias[c]));
    });
  }
}

// Tasks are blocks of columns of one segment. Each adds up the rows of its segment in order.
template <class T>
void run(const CpuStream& stream, const SegmentBiasGrad<T>& sum) {
  using A = Accumulator<T>;
  constexpr std::int64_t block = 128;
  require_segments("SegmentBiasGrad", sum, sum.dy, sum.d_bias);
  require_columns("SegmentBiasGrad", sum.columns, sum.dy.width);
  require_sources("SegmentBiasGrad", sum.picked, sum.segments);
  const bool gated = !sum.gate_of_row.empty();
  require(!gated || std::ssize(sum.gate_of_row) >= sum.segments.total(),
          "SegmentBiasGrad: there are {} indices of gates for {} rows", sum.gate_of_row.size(), sum.segments.total());
  require_indices("SegmentBiasGrad", "index of a gate", sum.gate_of_row, std::numeric_limits<std::int64_t>::min(),
                  std::ssize(sum.gate));
  struct Task {
    std::int64_t e, first;
  };
  std::vector<Task> tasks;
  for (std::int64_t e = 0; e < sum.segments.count(); ++e) {
    const auto i = static_cast<std::size_t>(e);
    if (!sum.d_bias[i] || sum.segments.rows[i] == 0) continue;
    const std::int64_t cols = bias_width(sum.columns, sum.dy.width[i]);
    for (std::int64_t first = 0; first < cols; first += block) tasks.push_back({e, first});
  }
  parallel_for_dynamic(stream, std::ssize(tasks), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const auto [e, first] = tasks[static_cast<std::size_t>(task)];
      const auto i = static_cast<std::size_t>(e);
      const std::int64_t cols = std::min(block, bias_width(sum.columns, sum.dy.width[i]) - first);
      std::array<A, block> partial{};
      for (std::int64_t r = 0; r < sum.segments.rows[i]; ++r) {
        const T* row = bias_columns_of_row(sum, e, r);
        if (!row) continue;
        const std::int64_t index = gated ? sum.gate_of_row[static_cast<std::size_t>(sum.segments.begin[i] + r)] : 0;
        if (index < 0) continue;
        const A gate = gated ? sum.gate[static_cast<std::size_t>(index)] : A{1};
        const T* dy = row + first;
#pragma omp simd
        for (std::int64_t c = 0; c < cols; ++c) partial[static_cast<std::size_t>(c)] += gate * static_cast<A>(dy[c]);
      }
      A* d_bias = sum.d_bias[i] + first;
      for (std::int64_t c = 0; c < cols; ++c) d_bias[c] += partial[static_cast<std::size_t>(c)];
    }
  });
}

template <class T>
void run(const CpuStream& stream, const SegmentBiasGateGrad<T>& sum) {
  using A = Accumulator<T>;
  require_segments("SegmentBiasGateGrad", sum, sum.dy, sum.bias);
  require_columns("SegmentBiasGateGrad", sum.columns, sum.dy.width);
  require_sources("SegmentBiasGateGrad", sum.picked, sum.segments);
  require(std::ssize(sum.gates.index) >= sum.segments.total(),
          "SegmentBiasGateGrad: there are {} indices of gates for {} rows", sum.gates.index.size(),
          sum.segments.total());
  require_indices("SegmentBiasGateGrad", "index of a gate", sum.gates.index, std::numeric_limits<std::int64_t>::min(),
                  std::ssize(sum.gates.d_gate));
  for (std::int64_t e = 0; e < sum.segments.count(); ++e) {
    const auto i = static_cast<std::size_t>(e);
    const std::int64_t cols = bias_width(sum.columns, sum.dy.width[i]);
    const T* bias = sum.bias[i];
    for_each_row(stream, sum.segments.rows[i], cols, [&](std::int64_t r) {
      const std::int64_t index = sum.gates.index[static_cast<std::size_t>(sum.segments.begin[i] + r)];
      const T* dy = bias_columns_of_row(sum, e, r);
      if (index < 0 || !dy) return;
      A dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t c = 0; c < cols; ++c) dot += static_cast<A>(dy[c]) * static_cast<A>(bias[c]);
      sum.gates.d_gate[static_cast<std::size_t>(index)] += dot;
    });
  }
}

LYCEUM_SEGMENT_BIAS_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
