#include "train/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/copy.h"
#include "core/random.h"
#include "kernels/gemm.h"

namespace lyceum {

std::int64_t peak_gemm_size(const Stream& stream) { return asynchronous(stream) ? 4096 : 512; }

double measure_gemm_peak(const Stream& stream, DType type) {
  const std::int64_t size = peak_gemm_size(stream);
  const double flops = 2.0 * static_cast<double>(size * size * size);
  using Clock = std::chrono::steady_clock;
  const auto make = [&](const char* name) {
    const Tensor values = Tensor::empty(stream, type, {size, size}, MemoryKind::buffers);
    const Philox random(1, name);
    dispatch_float(type, [&]<class T>() {
      std::vector<T> all(static_cast<std::size_t>(values.size()));
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<T>(static_cast<float>(random.normal(i)));
      copy_to_device(stream, values.span<T>(), std::span<const T>(all));
    });
    return values;
  };
  const Tensor a = make("peak a"), b = make("peak b"), c = make("peak c");
  double best = 0;
  const auto end = Clock::now() + std::chrono::milliseconds(200);
  for (int turn = 0; turn < 3 || Clock::now() < end; ++turn) {
    const auto start = Clock::now();
    dispatch_float(
        type, [&]<class T>() { launch(stream, Gemm<T>{.a = a.matrix<T>(), .b = b.matrix<T>(), .c = c.matrix<T>()}); });
    copy_to_host(stream, nullptr, nullptr, 0);  // waits for the device
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (turn > 0) best = std::max(best, flops / seconds);
  }
  return best;
}

}  // namespace lyceum
