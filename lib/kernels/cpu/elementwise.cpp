#include "kernels/elementwise.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

namespace {

/// Rounds to odd: truncates, and sets the last bit if the value is not exact. Rounding the result again, to a shorter
/// type, then gives the same number as rounding `value` once.
float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const auto word = std::bit_cast<std::uint32_t>(nearest);
  const bool away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  const bool inexact = static_cast<double>(nearest) != value;
  return std::bit_cast<float>((word - static_cast<std::uint32_t>(away)) | static_cast<std::uint32_t>(inexact));
}

template <class From, class To>
To convert(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<From, bfloat16>) {
    return static_cast<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<From, double> && std::is_same_v<To, bfloat16>) {
    return bfloat16(round_to_odd(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const Add<T>& add) {
  const auto count = static_cast<std::int64_t>(add.y.size());
  require_length("Add", "a", add.a, count);
  require_length("Add", "b", add.b, count);
  using A = Accumulator<T>;
  parallel_for(stream, count, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    const T* a = add.a.data();
    const T* b = add.b.data();
    T* y = add.y.data();
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i) y[i] = round_to<T>(static_cast<A>(a[i]) + static_cast<A>(b[i]));
  });
}

template <class T>
void run(const CpuStream& stream, const Scale<T>& scale) {
  const auto count = static_cast<std::int64_t>(scale.y.size());
  require_length("Scale", "x", scale.x, count);
  using A = Accumulator<T>;
  parallel_for(stream, count, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    const T* x = scale.x.data();
    T* y = scale.y.data();
    const A factor = static_cast<A>(scale.factor);
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i) y[i] = round_to<T>(static_cast<A>(x[i]) * factor);
  });
}

template <class T>
void run(const CpuStream& stream, const ReluForward<T>& relu) {
  const auto count = static_cast<std::int64_t>(relu.y.size());
  require_length("ReluForward", "x", relu.x, count);
  using A = Accumulator<T>;
  parallel_for(stream, count, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    const T* x = relu.x.data();
    T* y = relu.y.data();
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i) y[i] = static_cast<A>(x[i]) < 0 ? T{} : x[i];
  });
}

template <class T>
void run(const CpuStream& stream, const ReluBackward<T>& relu) {
  const auto count = static_cast<std::int64_t>(relu.dx.size());
  require_length("ReluBackward", "y", relu.y, count);
  require_length("ReluBackward", "dy", relu.dy, count);
  using A = Accumulator<T>;
  parallel_for(stream, count, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    const T* y = relu.y.data();
    const T* dy = relu.dy.data();
    T* dx = relu.dx.data();
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i) dx[i] = static_cast<A>(y[i]) > 0 ? dy[i] : T{};
  });
}

template <class T>
void run(const CpuStream& stream, const Clear<T>& clear) {
  parallel_for(
      stream, static_cast<std::int64_t>(clear.y.size()), elements_per_thread,
      [&](std::int64_t first, std::int64_t last) { std::fill(clear.y.data() + first, clear.y.data() + last, T{}); });
}

template <class From, class To>
void run(const CpuStream& stream, const AddScaled<From, To>& add) {
  const auto count = static_cast<std::int64_t>(add.y.size());
  require_length("AddScaled", "x", add.x, count);
  const double factor = add.factor * (add.times.empty() ? 1 : add.times[0]);
  parallel_for(stream, count, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    const From* x = add.x.data();
    To* y = add.y.data();
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i) {
      y[i] = static_cast<To>(static_cast<double>(y[i]) + factor * convert<From, double>(x[i]));
    }
  });
}

void run(const CpuStream& stream, const SplitFloat& split) {
  const std::int64_t rows = split.x.rows, cols = split.x.cols;
  const std::int64_t width = require_halves("SplitFloat", split.parts, rows, cols);
  parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const float* x = split.x.row(r);
      bfloat16* parts = split.parts.row(r);
      for (std::int64_t c = 0; c < cols; ++c) {
        parts[c] = static_cast<bfloat16>(x[c]);
        parts[width + c] = static_cast<bfloat16>(x[c] - static_cast<float>(parts[c]));
      }
      for (const std::int64_t half : {std::int64_t{0}, width})
        std::fill_n(parts + half + cols, width - cols, bfloat16());
    }
  });
}

template <class A>
void run(const CpuStream&, const Total<A>& total) {
  require_length("Total", "y", total.y, 1);
  total.y[0] = static_cast<A>(std::accumulate(total.x.begin(), total.x.end(), 0.0));
}

template <class From, class To>
void run(const CpuStream& stream, const Cast<From, To>& cast) {
  const auto count = static_cast<std::int64_t>(cast.y.size());
  require_length("Cast", "x", cast.x, count);
  parallel_for(stream, count, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    const From* x = cast.x.data();
    To* y = cast.y.data();
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i) y[i] = convert<From, To>(x[i]);
  });
}

LYCEUM_ELEMENTWISE_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
