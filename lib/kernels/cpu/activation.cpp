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

/// A row of inputs without biases.
template <class T>
struct PlainRow {
  const T* x;

  PlainRow(const T* x, const T*) : x(x) {}
  PlainRow from(std::int64_t first) const { return {x + first, nullptr}; }
  Accumulator<T> operator[](std::int64_t c) const { return static_cast<Accumulator<T>>(x[c]); }
};

/// A row of inputs to which biases are added.
template <class T>
struct BiasedRow {
  const T *x, *bias;

  BiasedRow(const T* x, const T* bias) : x(x), bias(bias) {}
  BiasedRow from(std::int64_t first) const { return {x + first, bias + first}; }
  Accumulator<T> operator[](std::int64_t c) const {
    return static_cast<Accumulator<T>>(x[c]) + static_cast<Accumulator<T>>(bias[c]);
  }
};

// The kinds of activation. forward() computes one row y = activation(x). backward() is for y = row_gate ·
// activation(x): it writes dx and y of one row and returns the gradient of row_gate. `width` is that of y. Input is
// PlainRow or BiasedRow.

/// Rows of x are [gate | up].
template <class T>
struct SwigluRows {
  using A = Accumulator<T>;

  explicit SwigluRows(const ActivationFunction&) {}

  template <class Input>
  void forward(const Input& x, std::int64_t width, T* y) const {
    const Input gate = x, up = x.from(width);
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      const A g = gate[c];
      y[c] = round_to<T>(g * sigmoid_of(g) * up[c]);
    }
  }

  template <class Input>
  A backward(const Input& x, const T* dy, A row_gate, std::int64_t width, T* dx, T* y) const {
    const Input gate = x, up = x.from(width);
    T* d_gate = dx;
    T* d_up = dx + width;
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t c = 0; c < width; ++c) {
      const A g = gate[c], u = up[c], given = static_cast<A>(dy[c]);
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

/// Rows of x are [gate | up]. Comparisons are written so that NaN stays NaN.
template <class T>
struct ClampedSwigluRows {
  using A = Accumulator<T>;

  A alpha, limit;

  explicit ClampedSwigluRows(const ActivationFunction& function)
      : alpha(static_cast<A>(function.alpha)), limit(static_cast<A>(function.limit)) {}

  A below(A x) const { return x > limit ? limit : x; }
  A within(A x) const { return x < -limit ? -limit : below(x); }

  template <class Input>
  void forward(const Input& x, std::int64_t width, T* y) const {
    const Input gate = x, up = x.from(width);
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      const A g = below(gate[c]);
      y[c] = round_to<T>(g * sigmoid_of(alpha * g) * (within(up[c]) + A{1}));
    }
  }

  template <class Input>
  A backward(const Input& x, const T* dy, A row_gate, std::int64_t width, T* dx, T* y) const {
    const Input gate = x, up = x.from(width);
    T* d_gate = dx;
    T* d_up = dx + width;
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t c = 0; c < width; ++c) {
      const A given_gate = gate[c], given_up = up[c], given = static_cast<A>(dy[c]);
      const A g = below(given_gate), u = within(given_up) + A{1};
      const A sigmoid = sigmoid_of(alpha * g);
      const A glu = g * sigmoid, result = glu * u, d = row_gate * given;
      dot += given * result;
      y[c] = round_to<T>(row_gate * result);
      // Clamped inputs have the gradient 0, or NaN if dy is NaN. (g·σ(α·g))' = σ + α·g·σ·(1 − σ)
      d_up[c] = round_to<T>(d * (given_up > limit || given_up < -limit ? A{0} : glu));
      d_gate[c] = round_to<T>(d * u * (given_gate > limit ? A{0} : sigmoid + alpha * glu * (A{1} - sigmoid)));
    }
    return dot;
  }
};

template <class T>
struct GeluRows {
  using A = Accumulator<T>;

  explicit GeluRows(const ActivationFunction&) {}

  template <class Input>
  void forward(const Input& x, std::int64_t width, T* y) const {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      const A u = x[c];
      y[c] = round_to<T>(u * normal_below(u));
    }
  }

  template <class Input>
  A backward(const Input& x, const T* dy, A row_gate, std::int64_t width, T* dx, T* y) const {
    constexpr A highest = std::numbers::inv_sqrtpi_v<A> * std::numbers::sqrt2_v<A> / 2;  // 1/√(2π)
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t c = 0; c < width; ++c) {
      const A u = x[c], given = static_cast<A>(dy[c]);
      const A below = normal_below(u), result = u * below;
      dot += given * result;
      y[c] = round_to<T>(row_gate * result);
      dx[c] = round_to<T>(row_gate * given * (below + u * highest * fast_exp(-u * u / 2)));  // Φ + u·φ
    }
    return dot;
  }
};

/// Calls f(rows, input), where `rows` computes rows of the function. `input` makes an Input of a row of segment e,
/// given x and e.
template <class T, class F>
void dispatch(const ActivationFunction& function, SegmentVectors<const T> bias, const F& f) {
  const auto with = [&]<class Rows>(const Rows& rows) {
    if (bias.empty()) return f(rows, [](const T* x, std::size_t) { return PlainRow<T>(x, nullptr); });
    f(rows, [bias](const T* x, std::size_t e) { return BiasedRow<T>(x, bias[e]); });
  };
  switch (function.kind) {
    case Activation::swiglu: return with(SwigluRows<T>(function));
    case Activation::gelu: return with(GeluRows<T>(function));
    case Activation::clamped_swiglu: return with(ClampedSwigluRows<T>(function));
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

/// Throws an Error unless there is a width per segment and `given` is inputs_of(function.kind) · width.
void require_widths(std::string_view kernel, const ActivationFunction& function, const Segments& segments,
                    std::span<const std::int64_t> given, std::span<const std::int64_t> width) {
  require_length(kernel, "begin", segments.begin, segments.count() + 1);
  require_length(kernel, "width of y", width, segments.count());
  require_length(kernel, "width of x", given, segments.count());
  for (std::size_t e = 0; e < width.size(); ++e) {
    require(given[e] == inputs_of(function.kind) * width[e],
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
  require_widths("ActivationForward", work.function, work.segments, work.x.width, work.y.width);
  if (!work.bias.empty()) require_length("ActivationForward", "bias", work.bias, work.segments.count());
  dispatch<T>(work.function, work.bias, [&](const auto& rows_of, const auto& input) {
    for_rows(stream, work.segments, [&](std::size_t e, std::int64_t first, std::int64_t last) {
      const auto segment = static_cast<std::int64_t>(e);
      const Matrix<const T> x = work.x.segment(work.segments, segment);
      const Matrix<T> y = work.y.segment(work.segments, segment);
      const std::int64_t rows = work.segments.rows[e];
      for (std::int64_t r = first; r < std::min(rows, last); ++r) rows_of.forward(input(x.row(r), e), y.cols, y.row(r));
      for (std::int64_t r = std::max(first, rows); r < last; ++r) std::fill_n(y.row(r), y.cols, T{});
    });
  });
}

template <class T>
void run(const CpuStream& stream, const ActivationBackward<T>& work) {
  require_widths("ActivationBackward", work.function, work.segments, work.x.width, work.y.width);
  require_widths("ActivationBackward", work.function, work.segments, work.dx.width, work.dy.width);
  if (!work.bias.empty()) require_length("ActivationBackward", "bias", work.bias, work.segments.count());
  const auto& gates = work.gates;
  if (gates) check_gates("ActivationBackward", gates, work.segments);
  std::ranges::fill(gates.d_gate, Accumulator<T>{0});
  dispatch<T>(work.function, work.bias, [&](const auto& rows_of, const auto& input) {
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
            rows_of.backward(input(x.row(r), e), shared ? copy.data() : dy.row(r), gate, y.cols, dx.row(r), y.row(r));
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
