#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// y = a + b, rounded once; y may be a or b.
template <class T>
struct Add {
  std::span<const T> a, b;
  std::span<T> y;
};

/// y = x · factor; y may be x.
template <class T>
struct Scale {
  std::span<const T> x;
  std::span<T> y;
  double factor;
};

/// y = max(x, 0); NaN stays NaN. y may be x.
template <class T>
struct ReluForward {
  std::span<const T> x;
  std::span<T> y;
};

/// dx = dy if y > 0, else 0, element by element. y is the result of ReluForward. dx may be dy.
template <class T>
struct ReluBackward {
  std::span<const T> y, dy;
  std::span<T> dx;
};

/// y = 0. y may be uninitialised.
template <class T>
struct Clear {
  std::span<T> y;
};

/// y += factor · times[0] · x, computed in double. From and To are float or double, or From is bfloat16 and To float.
template <class From, class To>
struct AddScaled {
  std::span<const From> x;
  double factor;
  std::span<To> y;
  std::span<const double> times = {};  // [1], in memory of the stream's device: a second factor; empty: 1
};

/// Splits floats into sums of two bf16 numbers, so that bf16 matrix units can multiply them: row i of `parts` is
/// [high | low], and high + low equals row i of x to 16 bits. Each half has `width` columns; columns from cols on are
/// zero.
struct SplitFloat {
  Matrix<const float> x;   // [rows, cols]
  Matrix<bfloat16> parts;  // [rows, 2 · width], width ≥ cols
};

/// y[0] = Σ x, summed in double. The order of summation depends only on the device and the number of elements.
template <class A>
struct Total {
  std::span<const A> x;
  std::span<A> y;  // [1]
};

/// y = x converted from any of float, bfloat16 and double to any of them. Rounds once, to nearest even.
template <class From, class To>
struct Cast {
  std::span<const From> x;
  std::span<To> y;
};

template <class T>
void run(const CpuStream& stream, const Add<T>& add);
template <class T>
void run(const CpuStream& stream, const Scale<T>& scale);
template <class T>
void run(const CpuStream& stream, const ReluForward<T>& relu);
template <class T>
void run(const CpuStream& stream, const ReluBackward<T>& relu);
template <class T>
void run(const CpuStream& stream, const Clear<T>& clear);
template <class From, class To>
void run(const CpuStream& stream, const AddScaled<From, To>& add);
void run(const CpuStream& stream, const SplitFloat& split);
template <class A>
void run(const CpuStream& stream, const Total<A>& total);
template <class From, class To>
void run(const CpuStream& stream, const Cast<From, To>& cast);

template <class T>
void run(const CudaStream& stream, const Add<T>& add);
template <class T>
void run(const CudaStream& stream, const Scale<T>& scale);
template <class T>
void run(const CudaStream& stream, const ReluForward<T>& relu);
template <class T>
void run(const CudaStream& stream, const ReluBackward<T>& relu);
template <class T>
void run(const CudaStream& stream, const Clear<T>& clear);
template <class From, class To>
void run(const CudaStream& stream, const AddScaled<From, To>& add);
void run(const CudaStream& stream, const SplitFloat& split);
template <class A>
void run(const CudaStream& stream, const Total<A>& total);
template <class From, class To>
void run(const CudaStream& stream, const Cast<From, To>& cast);

#define LYCEUM_ELEMENTWISE_KERNELS(INSTANCE)       \
  LYCEUM_FLOATS(INSTANCE, Add)                     \
  LYCEUM_FLOATS(INSTANCE, Scale)                   \
  LYCEUM_FLOATS(INSTANCE, ReluForward)             \
  LYCEUM_FLOATS(INSTANCE, ReluBackward)            \
  LYCEUM_FLOATS(INSTANCE, Clear)                   \
  INSTANCE(Clear<std::int64_t>)                    \
  LYCEUM_FLOATS(INSTANCE, AddScaled, float)        \
  LYCEUM_ACCUMULATORS(INSTANCE, AddScaled, double) \
  LYCEUM_ACCUMULATORS(INSTANCE, Total)             \
  LYCEUM_FLOATS(INSTANCE, Cast, float)             \
  LYCEUM_FLOATS(INSTANCE, Cast, bfloat16)          \
  LYCEUM_FLOATS(INSTANCE, Cast, double)

}  // namespace lyceum
