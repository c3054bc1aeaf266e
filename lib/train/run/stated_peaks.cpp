#include "train/run/stated_peaks.h"

#include <array>

namespace lyceum {

StatedPeaks stated_peaks(std::string_view gpu) {
  struct Known {
    std::string_view part;  // of the name; the first that fits counts
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

}  // namespace lyceum
