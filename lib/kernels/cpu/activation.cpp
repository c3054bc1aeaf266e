#include "kernels/activation.h"

#include <algorithm>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/vector_math.h"

namespace lyceum {

namespace {

template <class A>
A sigmoid_of(A x) {
  return A{1} / (A{1} + fast_exp(-x));
}

/// Returns Φ(x), the distribution function of the standard normal.
template <class A>
A normal_below(A x) {
  return A{0.5} * fast_erfc(-x * (std::numbers::sqrt2_v<A> / 2));
}

// The kinds of activation. forward() computes one row y = activation(x). backward() is for y = row_gate ·
// activation(x): it writes dx and y of one row and returns the gradient of row_gate. `width` is that of y.

/// Rows of x are [gate | up].
template <class T>
struct SwigluRows {
  using A = Accumulator<T>;

  static void forward(const T* x, std::int64_t width, T* y) {
    const T* gate = x;
    const T* up = x + width;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      const A g = static_cast<A>(gate[c]);
      y[c] = round_to<T>(g * sigmoid_of(g) * static_cast<A>(up[c]));
    }
  }

  static A backward(const T* x, const T* dy, A row_gate, std::int64_t width, T* dx, T* y) {
    const T* gate = x;
    const T* up = x + width;
    T* d_gate = dx;
    T* d_up = dx + width;
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t c = 0; c < width; ++c) {
      const A g = static_cast<A>(gate[c]), u = static_cast<A>(up[c]), given = static_cast<A>(dy[c]);
      const A sigmoid = sigmoid_of(g);
      const A silu = g * sigmoid, result = silu * u, d = row_gate * given;
      dot += given * result;
      y[c] = round_to<T>(row_gate * result);
      d_up[c] = round_to<T>(d * silu);
      d_gate[c] = round_to<T>(d * u * (sigmoid + silu * (A{1} - sigmoid)));  // silu' = σ + g·σ·(1 − σ)
    }
    return dot;
  }
};

template <class T>
struct GeluRows {
  using A = Accumulator<T>;

  static void forward(const T* x, std::int64_t width, T* y) {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      const A u = static_cast<A>(x[c]);
      y[c] = round_to<T>(u * normal_below(u));
    }
  }

  static A backward(const T* x, const T* dy, A row_gate, std::int64_t width, T* dx, T* y) {
    constexpr A highest = std::numbers::inv_sqrtpi_v<A> * std::numbers::sqrt2_v<A> / 2;  // 1/√(2π)
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t c = 0; c < width; ++c) {
      const A u = static_cast<A>(x[c]), given = static_cast<A>(dy[c]);
      const A below = normal_below(u), result = u * below;
      dot += given * result;
      y[c] = round_to<T>(row_gate * result);
      dx[c] = round_to<T>(row_gate * given * (below + u * highest * fast_exp(-u * u / 2)));  // Φ + u·φ
    }
    return dot;
  }
};

/// Calls f with an object of the class of the kind.
template <class T, class F>
void dispatch(Activation kind, const F& f) {
  if (kind == Activation::swiglu) {
    f(SwigluRows<T>());
  } else {
    f(GeluRows<T>());
  }
}

/// Calls f(segment, first, last) on ranges of rows that cover all segments, padding included, in parallel. Rows are
/// counted within the segment.
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

/// Throws an Error unless there is a width per segment and `given` is inputs_of(kind) · width.
void require_widths(std::string_view kernel, Activation kind, const Segments& segments,
                    std::span<const std::int64_t> given, std::span<const std::int64_t> width) {
  require_length(kernel, "begin", segments.begin, segments.count() + 1);
  require_length(kernel, "width of y", width, segments.count());
  require_length(kernel, "width of x", given, segments.count());
  for (std::size_t e = 0; e < width.size(); ++e) {
    require(given[e] == inputs_of(kind) * width[e],
            "{}: segment {} has inputs of {} columns, which do not match results of {}", kernel, e, given[e], width[e]);
  }
}

/// Throws an Error unless each row has an index of a gate that exists, or a negative one.
template <class A>
void check_gates(std::string_view kernel, const RowGates<A>& gates, const Segments& segments) {
  require_length(kernel, "d_gate", gates.d_gate, std::ssize(gates.gate));
  require(std::ssize(gates.index) >= segments.total(), "{}: there are {} indices of gates for {} rows", kernel,
          gates.index.size(), segments.total());
  require_indices(kernel, "index of a gate", gates.index, std::numeric_limits<std::int64_t>::min(),
                  std::ssize(gates.gate));
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const ActivationForward<T>& work) {
  require_widths("ActivationForward", work.kind, work.segments, work.x.width, work.y.width);
  dispatch<T>(work.kind, [&]<class Rows>(Rows) {
    for_rows(stream, work.segments, [&](std::size_t e, std::int64_t first, std::int64_t last) {
      const auto segment = static_cast<std::int64_t>(e);
      const Matrix<const T> x = work.x.segment(work.segments, segment);
      const Matrix<T> y = work.y.segment(work.segments, segment);
      const std::int64_t rows = work.segments.rows[e];
      for (std::int64_t r = first; r < std::min(rows, last); ++r) Rows::forward(x.row(r), y.cols, y.row(r));
      for (std::int64_t r = std::max(first, rows); r < last; ++r) std::fill_n(y.row(r), y.cols, T{});
    });
  });
}

template <class T>
void run(const CpuStream& stream, const ActivationBackward<T>& work) {
  require_widths("ActivationBackward", work.kind, work.segments, work.x.width, work.y.width);
  require_widths("ActivationBackward", work.kind, work.segments, work.dx.width, work.dy.width);
  const auto& gates = work.gates;
  if (gates) check_gates("ActivationBackward", gates, work.segments);
  std::ranges::fill(gates.d_gate, Accumulator<T>{0});
  dispatch<T>(work.kind, [&]<class Rows>(Rows) {
    for_rows(stream, work.segments, [&](std::size_t e, std::int64_t first, std::int64_t last) {
      const auto segment = static_cast<std::int64_t>(e);
      const Matrix<const T> x = work.x.segment(work.segments, segment);
      const Matrix<const T> dy = work.dy.segment(work.segments, segment);
      const Matrix<T> dx = work.dx.segment(work.segments, segment);
      const Matrix<T> y = work.y.segment(work.segments, segment);
      const std::int64_t rows = work.segments.rows[e];
      // If y is the memory of dy, dy is copied: the loops of backward() are declared independent (omp simd) and might
      // write elements of y before they read them as dy.
      const bool shared = dy.data == y.data;
      std::vector<T> copy(static_cast<std::size_t>(shared ? dy.cols : 0));
      for (std::int64_t r = first; r < std::min(rows, last); ++r) {
        if (shared) std::copy_n(dy.row(r), dy.cols, copy.data());
        const std::int64_t index = gates ? gates.index[static_cast<std::size_t>(work.segments.begin[e] + r)] : -1;
        const auto position = static_cast<std::size_t>(index);
        Accumulator<T> gate = gates ? 0 : 1;
        if (index >= 0) gate = gates.gate[position];
        const Accumulator<T> d_gate =
            Rows::backward(x.row(r), shared ? copy.data() : dy.row(r), gate, y.cols, dx.row(r), y.row(r));
        if (index >= 0) gates.d_gate[position] = d_gate;
      }
      for (std::int64_t r = std::max(first, rows); r < last; ++r) {
        std::fill_n(dx.row(r), dx.cols, T{});
        std::fill_n(y.row(r), y.cols, T{});
      }
    });
  });
}

LYCEUM_ACTIVATION_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
