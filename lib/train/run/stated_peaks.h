#pragma once

#include <string_view>

namespace lyceum {

/// What the maker of a GPU states, a second; dense products, f32 accumulation. 0: not known.
struct StatedPeaks {
  double bf16_flops = 0, f32_flops = 0;
  double bytes = 0;  // of device memory
};
/// Of the GPU that the driver calls so: "NVIDIA H100 80GB HBM3".
StatedPeaks stated_peaks(std::string_view gpu);

}  // namespace lyceum
