#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/measures.h"

namespace lyceum {

namespace {

constexpr int measures_threads = 256;

template <int width, class T>
__global__ void __launch_bounds__(measures_threads) squares_of_rows(AddSquares<T> add) {
  for (std::int64_t r = blockIdx.x; r < add.x.rows; r += gridDim.x) {
    const T* x = add.x.row(r);
    double sum = 0;
    for (std::int64_t c = threadIdx.x * width; c < add.x.cols; c += measures_threads * width) {
      const auto pack = load<width>(x + c);
      for (int e = 0; e < width; ++e) {
        const auto value = static_cast<double>(widen(pack[e]));
        sum += value * value;
      }
    }
    sum = join_block<measures_threads>(sum, Sum{});
    if (threadIdx.x == 0) add.rows[r] = sum;
  }
}

__global__ void __launch_bounds__(measures_threads) total_of_rows(std::span<const double> rows, std::span<double> y) {
  double sum = 0;
  for (std::size_t r = threadIdx.x; r < rows.size(); r += measures_threads) sum += rows[r];
  sum = join_block<measures_threads>(sum, Sum{});
  if (threadIdx.x == 0) y[0] += sum;
}

/// Returns the larger number, or NaN if one of them is NaN.
struct LargestOrNan {
  __device__ double operator()(double a, double b) const { return std::isnan(a) || a > b ? a : b; }
};

template <class A>
__global__ void __launch_bounds__(measures_threads) raise_to_largest(RaiseToLargest<A> raise) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::size_t i = threadIdx.x; i < raise.x.size(); i += measures_threads) {
    largest = LargestOrNan{}(largest, static_cast<double>(raise.x[i]));
  }
  largest = join_block<measures_threads>(largest, LargestOrNan{});
  if (threadIdx.x == 0) raise.y[0] = LargestOrNan{}(raise.y[0], largest);
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const AddSquares<T>& add) {
  require_length("AddSquares", "rows", add.rows, add.x.rows);
  require_length("AddSquares", "y", add.y, 1);
  constexpr int width = pack_width<T>;
  start(stream, "AddSquares", fits_packs(add.x, width) ? squares_of_rows<width, T> : squares_of_rows<1, T>,
        blocks_for(add.x.rows), measures_threads, add);
  start(stream, "AddSquares", total_of_rows, 1, measures_threads, std::span<const double>(add.rows), add.y);
}

template <class A>
void run(const CudaStream& stream, const RaiseToLargest<A>& raise) {
  require_length("RaiseToLargest", "y", raise.y, 1);
  start(stream, "RaiseToLargest", raise_to_largest<A>, 1, measures_threads, raise);
}

LYCEUM_MEASURES_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
