#include "device_report.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>

#include "timing.h"
#include "train/run/device_peak.h"
#ifdef LYCEUM_BENCH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace lyceum {

namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

}  // namespace

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"), pclose);
  std::array<char, 512> line{};
  if (!pipe || !std::fgets(line.data(), line.size(), pipe.get())) return "";
  std::string text = line.data();
  return text.substr(0, text.find('\n'));
}

DeviceReport describe_device([[maybe_unused]] const Stream& stream) {
#ifdef LYCEUM_BENCH_CUDA
  if (const auto* gpu = std::get_if<CudaStream>(&stream)) {
    cudaDeviceProp properties{};
    std::array<char, 32> bus{};
    if (cudaGetDeviceProperties(&properties, gpu->device()) == cudaSuccess &&
        cudaDeviceGetPCIBusId(bus.data(), bus.size(), gpu->device()) == cudaSuccess) {
      DeviceReport report{.name = properties.name, .driver = "", .selector = bus.data(), .peaks = {}};
      report.driver =
          output_of("nvidia-smi -i " + report.selector + " --query-gpu=driver_version --format=csv,noheader");
      const StatedPeaks stated = stated_peaks(report.name);
      report.peaks = {.flops = stated.bf16_flops, .bytes = stated.bytes};
      return report;
    }
  }
#endif
  return {.name = cpu_name(), .driver = "", .selector = "", .peaks = {}};
}

std::future<std::string> sample_clocks(const DeviceReport& device) {
  return std::async(std::launch::async, [selector = device.selector] {
    if (selector.empty()) return std::string();
    const std::string answer = output_of("nvidia-smi -i " + selector +
                                         " --query-gpu=clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu,"
                                         "clocks_event_reasons.active --format=csv,noheader");
    return answer.empty() ? "nvidia-smi does not answer" : answer;
  });
}

double host_bandwidth(int threads) {
  constexpr std::size_t count = std::size_t{1} << 24;  // 64 MB per array: more than a cache holds
  std::vector<float> a(count), b(count, 1.0f), c(count, 2.0f);
  const Timing timing = measure([&](std::size_t round) {
    const auto scale = static_cast<float>(round % 3);
#pragma omp parallel for simd num_threads(threads)
    for (std::size_t i = 0; i < count; ++i) a[i] = b[i] + scale * c[i];
  });
  return 3.0 * count * sizeof(float) / timing.median;
}

}  // namespace lyceum
