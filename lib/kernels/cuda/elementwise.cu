#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/elementwise.h"

namespace lyceum {

namespace {

constexpr int element_threads = 256;

/// Calls op.at<width>(i) for every whole pack of elements, and op.at<1>(i) for the remaining elements. A grid-stride
/// loop, one thread per pack.
template <int width, class Op>
__global__ void __launch_bounds__(element_threads) for_elements(std::int64_t count, Op op) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * element_threads + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * element_threads;
  const std::int64_t packs = count / width;
  for (std::int64_t i = first; i < packs; i += stride) op.template at<width>(i * width);
  for (std::int64_t i = packs * width + first; i < count; i += stride) op.template at<1>(i);
}

/// Launches for_elements() with packs if all operands are aligned to 16 bytes, else element by element. `width` is the
/// number of elements of the largest type in 16 bytes, `addresses` are those of all operands.
template <int width, class Op>
void run_elements(const CudaStream& stream, const char* name, std::int64_t count, const Op& op,
                  std::initializer_list<const void*> addresses) {
  const bool aligned = std::all_of(addresses.begin(), addresses.end(), [](const void* a) { return is_aligned(a); });
  if (aligned) {
    start(stream, name, for_elements<width, Op>, blocks_for(count, element_threads * width), element_threads, count,
          op);
  } else {
    start(stream, name, for_elements<1, Op>, blocks_for(count, element_threads), element_threads, count, op);
  }
}

template <class T>
struct AddElements {
  const T* a;
  const T* b;
  T* y;
  template <int width>
  __device__ void at(std::int64_t i) const {
    const auto left = load<width>(a + i), right = load<width>(b + i);
    Pack<T, width> sum;
    for (int e = 0; e < width; ++e) sum[e] = narrow<T>(widen(left[e]) + widen(right[e]));
    store(y + i, sum);
  }
};

template <class T>
struct ScaleElements {
  const T* x;
  T* y;
  Accumulator<T> factor;
  template <int width>
  __device__ void at(std::int64_t i) const {
    const auto values = load<width>(x + i);
    Pack<T, width> product;
    for (int e = 0; e < width; ++e) product[e] = narrow<T>(widen(values[e]) * factor);
    store(y + i, product);
  }
};

template <class T>
struct ReluElements {
  const T* x;
  T* y;
  template <int width>
  __device__ void at(std::int64_t i) const {
    const auto values = load<width>(x + i);
    Pack<T, width> kept;
    for (int e = 0; e < width; ++e) kept[e] = widen(values[e]) < 0 ? T{} : values[e];
    store(y + i, kept);
  }
};

template <class T>
struct ReluBackwardElements {
  const T* y;
  const T* dy;
  T* dx;
  template <int width>
  __device__ void at(std::int64_t i) const {
    const auto results = load<width>(y + i), gradients = load<width>(dy + i);
    Pack<T, width> kept;
    for (int e = 0; e < width; ++e) kept[e] = widen(results[e]) > 0 ? gradients[e] : T{};
    store(dx + i, kept);
  }
};

/// Converts with a single rounding. From double to bfloat16, the intermediate float is rounded to odd, so that the
/// second rounding does not add an error.
template <class To, class From>
__device__ To convert(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<From, double> && std::is_same_v<To, bfloat16>) {
    const float toward_zero = __double2float_rz(value);
    const bool inexact = static_cast<double>(toward_zero) != value;
    return narrow<bfloat16>(__uint_as_float(__float_as_uint(toward_zero) | static_cast<unsigned>(inexact)));
  } else if constexpr (std::is_same_v<To, bfloat16>) {
    return narrow<bfloat16>(value);
  } else {
    return static_cast<To>(widen(value));
  }
}

template <class From, class To>
struct CastElements {
  const From* x;
  To* y;
  template <int width>
  __device__ void at(std::int64_t i) const {
    const auto values = load<width>(x + i);
    Pack<To, width> converted;
    for (int e = 0; e < width; ++e) converted[e] = convert<To>(values[e]);
    store(y + i, converted);
  }
};

template <class From, class To>
struct AddScaledElements {
  const From* x;
  To* y;
  double factor;
  const double* times;
  template <int width>
  __device__ void at(std::int64_t i) const {
    const double scale = times ? factor * *times : factor;
    for (int e = 0; e < width; ++e) {
      y[i + e] = static_cast<To>(static_cast<double>(y[i + e]) + scale * static_cast<double>(widen(x[i + e])));
    }
  }
};

__global__ void __launch_bounds__(element_threads) split_floats(SplitFloat split) {
  const std::int64_t width = split.parts.cols / 2, count = split.x.rows * width;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * element_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * element_threads + threadIdx.x; i < count; i += stride) {
    const std::int64_t r = i / width, c = i % width;
    const float x = c < split.x.cols ? split.x.row(r)[c] : 0.0f;
    const bfloat16 high = narrow<bfloat16>(x);
    split.parts.row(r)[c] = high;
    split.parts.row(r)[width + c] = narrow<bfloat16>(x - widen(high));
  }
}

/// One thread block: thread t sums every total_threads-th element, from element t on; then the threads' sums are
/// joined.
constexpr int total_threads = 1024;

template <class A>
__global__ void __launch_bounds__(total_threads) add_up(Total<A> total) {
  double sum = 0;
  for (std::size_t i = threadIdx.x; i < total.x.size(); i += total_threads) sum += static_cast<double>(total.x[i]);
  sum = join_block<total_threads>(sum, Sum{});
  if (threadIdx.x == 0) total.y[0] = static_cast<A>(sum);
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const Add<T>& add) {
  const auto count = static_cast<std::int64_t>(add.y.size());
  require_length("Add", "a", add.a, count);
  require_length("Add", "b", add.b, count);
  const AddElements<T> op{add.a.data(), add.b.data(), add.y.data()};
  run_elements<pack_width<T>>(stream, "Add", count, op, {op.a, op.b, op.y});
}

template <class T>
void run(const CudaStream& stream, const Scale<T>& scale) {
  const auto count = static_cast<std::int64_t>(scale.y.size());
  require_length("Scale", "x", scale.x, count);
  const ScaleElements<T> op{scale.x.data(), scale.y.data(), static_cast<Accumulator<T>>(scale.factor)};
  run_elements<pack_width<T>>(stream, "Scale", count, op, {op.x, op.y});
}

template <class T>
void run(const CudaStream& stream, const ReluForward<T>& relu) {
  const auto count = static_cast<std::int64_t>(relu.y.size());
  require_length("ReluForward", "x", relu.x, count);
  const ReluElements<T> op{relu.x.data(), relu.y.data()};
  run_elements<pack_width<T>>(stream, "ReluForward", count, op, {op.x, op.y});
}

template <class T>
void run(const CudaStream& stream, const ReluBackward<T>& relu) {
  const auto count = static_cast<std::int64_t>(relu.dx.size());
  require_length("ReluBackward", "y", relu.y, count);
  require_length("ReluBackward", "dy", relu.dy, count);
  const ReluBackwardElements<T> op{relu.y.data(), relu.dy.data(), relu.dx.data()};
  run_elements<pack_width<T>>(stream, "ReluBackward", count, op, {op.y, op.dy, op.dx});
}

template <class T>
void run(const CudaStream& stream, const Clear<T>& clear) {
  if (clear.y.empty()) return;
  check(cudaMemsetAsync(clear.y.data(), 0, clear.y.size_bytes(), stream.handle()), "Clear");
}

template <class From, class To>
void run(const CudaStream& stream, const AddScaled<From, To>& add) {
  const auto count = static_cast<std::int64_t>(add.y.size());
  require_length("AddScaled", "x", add.x, count);
  const AddScaledElements<From, To> op{add.x.data(), add.y.data(), add.factor, add.times.data()};
  run_elements<1>(stream, "AddScaled", count, op, {op.x, op.y});
}

void run(const CudaStream& stream, const SplitFloat& split) {
  const std::int64_t width = require_halves("SplitFloat", split.parts, split.x.rows, split.x.cols);
  start(stream, "SplitFloat", split_floats, blocks_for(split.x.rows * width, element_threads), element_threads, split);
}

template <class A>
void run(const CudaStream& stream, const Total<A>& total) {
  require_length("Total", "y", total.y, 1);
  start(stream, "Total", add_up<A>, 1, total_threads, total);
}

template <class From, class To>
void run(const CudaStream& stream, const Cast<From, To>& cast) {
  const auto count = static_cast<std::int64_t>(cast.y.size());
  require_length("Cast", "x", cast.x, count);
  const CastElements<From, To> op{cast.x.data(), cast.y.data()};
  constexpr int width = std::max(pack_width<From>, pack_width<To>);
  run_elements<width>(stream, "Cast", count, op, {op.x, op.y});
}

LYCEUM_ELEMENTWISE_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
