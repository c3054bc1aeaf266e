#include "train/run/device_peak.h"

#include <gtest/gtest.h>

namespace lyceum {
namespace {

TEST(StatedPeaks, KnowsGpusByTheirNames) {
  EXPECT_EQ(stated_peaks("NVIDIA H100 80GB HBM3").bf16_flops, 989e12);
  EXPECT_EQ(stated_peaks("NVIDIA H100 PCIe").bf16_flops, 756e12);
  EXPECT_EQ(stated_peaks("NVIDIA A100-SXM4-80GB").f32_flops, 19.5e12);
  EXPECT_EQ(stated_peaks("cpu").bf16_flops, 0);
  EXPECT_EQ(stated_peaks("").f32_flops, 0);
}

}  // namespace
}  // namespace lyceum
