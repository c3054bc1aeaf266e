#include "train/peak.h"

#include <algorithm>
#include <vector>

#include "core/clock.h"
#include "core/copy.h"
#include "core/random.h"
#include "kernels/gemm.h"

namespace lyceum {

namespace {

/// A square matrix of a few random rows again and again.
Tensor make_matrix(const Stream& stream, DType type, std::int64_t size, const char* name) {
  constexpr std::int64_t rows = 64;
  const Tensor matrix = Tensor::empty(stream, type, {size, size}, MemoryKind::buffers);
  const Philox random(1, name);
  dispatch_float(type, [&]<class T>() {
    std::vector<T> some(static_cast<std::size_t>(rows * size));
    for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<T>(static_cast<float>(random.normal(i)));
    for (std::int64_t row = 0; row < size; row += rows) {
      copy_to_device(stream, matrix.slice(row, rows).span<T>(), std::span<const T>(some));
    }
  });
  return matrix;
}

/// Seconds of the best of the GEMMs that fit into `budget` seconds, at least two; the first one does not count.
double best_gemm(const Stream& stream, DType type, std::int64_t size, double budget) {
  const Tensor a = make_matrix(stream, type, size, "peak a"), b = make_matrix(stream, type, size, "peak b"),
               c = make_matrix(stream, type, size, "peak c");
  const auto begin = Clock::now();
  double best = 0;
  for (int turn = 0; turn < 3 || seconds_since(begin) < budget; ++turn) {
    const auto start = Clock::now();
    dispatch_float(
        type, [&]<class T>() { launch(stream, Gemm<T>{.a = a.matrix<T>(), .b = b.matrix<T>(), .c = c.matrix<T>()}); });
    copy_to_host(stream, nullptr, nullptr, 0);  // waits for the device
    const double seconds = seconds_since(start);
    if (turn == 1 || (turn > 1 && seconds < best)) best = seconds;
  }
  return best;
}

}  // namespace

GemmPeak measure_gemm_peak(const Stream& stream, DType type) {
  constexpr std::int64_t largest = 8192;
  constexpr double long_enough = 1e-3;
  std::int64_t size = 512;
  while (asynchronous(stream) && size < largest && best_gemm(stream, type, size, 0) < long_enough) size *= 2;
  const double n = static_cast<double>(size);
  return {.flops = 2 * n * n * n / best_gemm(stream, type, size, 0.2), .size = size};
}

}  // namespace lyceum
