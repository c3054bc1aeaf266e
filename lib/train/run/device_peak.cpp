#include "train/run/device_peak.h"

#include <algorithm>
#include <cmath>

#include "core/clock.h"
#include "core/copy.h"
#include "core/random.h"
#include "core/round_up.h"
#include "kernels/gemm.h"

namespace lyceum {

namespace {

/// Returns a square matrix that repeats 64 random rows, which is faster to fill than one with random rows only.
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

/// Returns the seconds of the fastest GEMM. Repeats it for `budget` seconds, at least three times; the first one, which
/// warms up, does not count.
double best_gemm(const GemmLoad& load, double budget) {
  const auto begin = Clock::now();
  double best = 0;
  for (int turn = 0; turn < 3 || seconds_since(begin) < budget; ++turn) {
    const auto start = Clock::now();
    load.multiply();
    const double seconds = seconds_since(start);
    if (turn == 1 || (turn > 1 && seconds < best)) best = seconds;
  }
  return best;
}

}  // namespace

StatedPeaks stated_peaks(std::string_view gpu) {
  struct Known {
    std::string_view part;  // of the GPU's name; the first entry whose part occurs in the name applies
    double bf16_tflops, f32_tflops, tbytes;
  };
  constexpr auto all = std::to_array<Known>({{"GH200", 989, 67, 4.0},
                                             {"H100 PCIe", 756, 51, 2.0},
                                             {"H100 NVL", 835, 60, 3.9},
                                             {"H100", 989, 67, 3.35},
                                             {"H200 NVL", 835, 60, 4.8},
                                             {"H200", 989, 67, 4.8},
                                             {"A100-SXM4-80GB", 312, 19.5, 2.039},
                                             {"A100 80GB PCIe", 312, 19.5, 1.935},
                                             {"A100", 312, 19.5, 1.555}});
  for (const Known& device : all) {
    if (gpu.find(device.part) == gpu.npos) continue;
    return {
        .bf16_flops = device.bf16_tflops * 1e12, .f32_flops = device.f32_tflops * 1e12, .bytes = device.tbytes * 1e12};
  }
  return {};
}

GemmLoad::GemmLoad(const Stream& stream, DType type, std::int64_t size)
    : stream_(stream),
      type_(type),
      a_(make_matrix(stream, type, size, "peak a")),
      b_(make_matrix(stream, type, size, "peak b")),
      c_(make_matrix(stream, type, size, "peak c")) {}

double GemmLoad::multiply() const {
  dispatch_float(type_, [&]<class T>() {
    launch(stream_, Gemm<T>{.a = a_.matrix<T>(), .b = b_.matrix<T>(), .c = c_.matrix<T>()});
  });
  copy_to_host(stream_, nullptr, nullptr, 0);  // waits for the device
  const auto n = static_cast<double>(a_.shape()[0]);
  return 2 * n * n * n;
}

std::int64_t peak_gemm_size(const Stream& stream, DType type) {
  constexpr std::int64_t smallest = 512, largest = 8192;
  constexpr double long_enough = 1e-3;
  if (!asynchronous(stream)) {
    const int threads = std::get<CpuStream>(stream).threads();
    return std::min(largest, round_up<std::int64_t>(std::llround(smallest * std::cbrt(threads)), 64));
  }
  std::int64_t size = smallest;
  while (size < largest && best_gemm(GemmLoad(stream, type, size), 0) < long_enough) size *= 2;
  return size;
}

GemmPeak measure_gemm_peak(const Stream& stream, DType type) {
  const std::int64_t size = peak_gemm_size(stream, type);
  const double n = static_cast<double>(size);
  return {.flops = 2 * n * n * n / best_gemm(GemmLoad(stream, type, size), 0.2), .size = size};
}

}  // namespace lyceum
