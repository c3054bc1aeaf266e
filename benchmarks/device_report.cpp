#include "device_report.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "timing.h"
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

Peaks known_peaks(const std::string& name) {
  struct Known {
    std::string_view part;  // of the name; the first that fits counts
    double tflops, tbytes;
  };
  constexpr auto all = std::to_array<Known>({{"GH200", 989, 4.0},
                                             {"H100 PCIe", 756, 2.0},
                                             {"H100 NVL", 835, 3.9},
                                             {"H100", 989, 3.35},
                                             {"H200 NVL", 835, 4.8},
                                             {"H200", 989, 4.8},
                                             {"A100-SXM4-80GB", 312, 2.039},
                                             {"A100 80GB PCIe", 312, 1.935},
                                             {"A100", 312, 1.555}});
  for (const Known& device : all) {
    if (name.find(device.part) != name.npos) return {device.tflops * 1e12, device.tbytes * 1e12};
  }
  return {};
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
      report.peaks = known_peaks(report.name);
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
    return answer.empty() ? "nvidia-smi gives no answer" : answer;
  });
}

double host_bandwidth(int threads) {
  constexpr std::size_t count = std::size_t{1} << 24;  // 64 MB each: more than a cache holds
  std::vector<float> a(count), b(count, 1.0f), c(count, 2.0f);
  const Timing timing = measure([&](std::size_t round) {
    const auto scale = static_cast<float>(round % 3);
#pragma omp parallel for simd num_threads(threads)
    for (std::size_t i = 0; i < count; ++i) a[i] = b[i] + scale * c[i];
  });
  return 3.0 * count * sizeof(float) / timing.median;
}

}  // namespace lyceum
