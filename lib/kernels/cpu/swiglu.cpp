#include "kernels/swiglu.h"

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/vector_math.h"

namespace lyceum {

namespace {

template <class A>
A sigmoid_of(A x) {
  return A{1} / (A{1} + fast_exp(-x));
}

template <class T>
void forward_row(const T* x, std::int64_t width, T* y) {
  using A = Accumulator<T>;
  const T* gate = x;
  const T* up = x + width;
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) {
    const A g = static_cast<A>(gate[c]);
    y[c] = round_to<T>(g * sigmoid_of(g) * static_cast<A>(up[c]));
  }
}

template <class T>
void backward_row(const T* x, const T* dy, std::int64_t width, T* dx, T* y) {
  using A = Accumulator<T>;
  const T* gate = x;
  const T* up = x + width;
  T* d_gate = dx;
  T* d_up = dx + width;
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) {
    const A g = static_cast<A>(gate[c]), u = static_cast<A>(up[c]), d = static_cast<A>(dy[c]);
    const A sigmoid = sigmoid_of(g);
    const A silu = g * sigmoid;
    y[c] = round_to<T>(silu * u);
    d_up[c] = round_to<T>(d * silu);
    d_gate[c] = round_to<T>(d * u * (sigmoid + silu * (A{1} - sigmoid)));  // silu' = σ + g·σ·(1 − σ)
  }
}

/// f(segment, first, last) on rows [first, last) within the segment, padding included, over all segments.
template <class F>
void for_rows(const CpuStream& stream, const Segments& segments, const F& f) {
  if (segments.count() == 0) return;
  const auto& begin = segments.begin;
  parallel_for_dynamic(stream, segments.total(), Segments::alignment, [&](std::int64_t first, std::int64_t last) {
    auto e = std::upper_bound(begin.begin(), begin.end(), first) - begin.begin() - 1;
    for (std::int64_t r = first; r < last; ++e) {
      const auto s = static_cast<std::size_t>(e);
      const std::int64_t end = std::min(last, begin[s + 1]);
      if (r < end) f(s, r - begin[s], end - begin[s]);
      r = std::max(r, end);
    }
  });
}

void require_widths(std::string_view kernel, const Segments& segments, std::span<const std::int64_t> double_width,
                    std::span<const std::int64_t> width) {
  require_length(kernel, "begin", segments.begin, segments.count() + 1);
  require_length(kernel, "width of y", width, segments.count());
  require_length(kernel, "width of x", double_width, segments.count());
  for (std::size_t e = 0; e < width.size(); ++e) {
    require(double_width[e] == 2 * width[e], "{}: segment {} has rows of {} columns for results of {}", kernel, e,
            double_width[e], width[e]);
  }
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const SwigluForward<T>& swiglu) {
  require_widths("SwigluForward", swiglu.segments, swiglu.x.width, swiglu.y.width);
  for_rows(stream, swiglu.segments, [&](std::size_t e, std::int64_t first, std::int64_t last) {
    const auto segment = static_cast<std::int64_t>(e);
    const Matrix<const T> x = swiglu.x.segment(swiglu.segments, segment);
    const Matrix<T> y = swiglu.y.segment(swiglu.segments, segment);
    const std::int64_t rows = swiglu.segments.rows[e];
    for (std::int64_t r = first; r < std::min(rows, last); ++r) forward_row(x.row(r), y.cols, y.row(r));
    for (std::int64_t r = std::max(first, rows); r < last; ++r) std::fill_n(y.row(r), y.cols, T{});
  });
}

template <class T>
void run(const CpuStream& stream, const SwigluBackward<T>& swiglu) {
  require_widths("SwigluBackward", swiglu.segments, swiglu.x.width, swiglu.y.width);
  require_widths("SwigluBackward", swiglu.segments, swiglu.dx.width, swiglu.dy.width);
  for_rows(stream, swiglu.segments, [&](std::size_t e, std::int64_t first, std::int64_t last) {
    const auto segment = static_cast<std::int64_t>(e);
    const Matrix<const T> x = swiglu.x.segment(swiglu.segments, segment);
    const Matrix<const T> dy = swiglu.dy.segment(swiglu.segments, segment);
    const Matrix<T> dx = swiglu.dx.segment(swiglu.segments, segment);
    const Matrix<T> y = swiglu.y.segment(swiglu.segments, segment);
    const std::int64_t rows = swiglu.segments.rows[e];
    for (std::int64_t r = first; r < std::min(rows, last); ++r) {
      backward_row(x.row(r), dy.row(r), y.cols, dx.row(r), y.row(r));
    }
    for (std::int64_t r = std::max(first, rows); r < last; ++r) {
      std::fill_n(dx.row(r), dx.cols, T{});
      std::fill_n(y.row(r), y.cols, T{});
    }
  });
}

template void run(const CpuStream&, const SwigluForward<float>&);
template void run(const CpuStream&, const SwigluForward<bfloat16>&);
template void run(const CpuStream&, const SwigluForward<double>&);
template void run(const CpuStream&, const SwigluBackward<float>&);
template void run(const CpuStream&, const SwigluBackward<bfloat16>&);
template void run(const CpuStream&, const SwigluBackward<double>&);

}  // namespace lyceum
