#include "core/copy.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace lyceum {
namespace {

std::vector<float> numbers() {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 0.5f);
  return values;
}

TEST(Copy, GoesToTheCpuAndBack) {
  const Stream stream = CpuStream(1);
  const std::vector<float> host = numbers();
  const Tensor device = Tensor::empty(stream, DType::f32, {1000}), other = Tensor::zeros(stream, DType::f32, {1000});
  copy_to_device(stream, device.span<float>(), std::span(host));
  copy_on_device(stream, other.raw(), device.raw(), device.bytes());
  std::vector<float> back(1000);
  copy_to_host(stream, std::span(back), other.span<const float>());
  EXPECT_EQ(back, host);
  copy_to_host(stream, std::span(back).first(0), other.span<const float>().first(0));
  EXPECT_THROW(copy_to_host(stream, std::span(back).first(999), other.span<const float>()), Error);
  EXPECT_THROW(copy_to_device(stream, device.span<float>(), std::span(host).first(999)), Error);
}

TEST(Copy, IsNotMadeInARehearsal) {
  const Stream stream = RehearsalStream();
  const std::vector<float> host = numbers();
  const Tensor device = Tensor::empty(stream, DType::f32, {1000});
  copy_to_device(stream, device.span<float>(), std::span(host));
  copy_on_device(stream, nullptr, device.raw(), device.bytes());
  std::vector<float> back = host;
  copy_to_host(stream, std::span(back), device.span<const float>());
  EXPECT_EQ(back, std::vector<float>(1000));
}

}  // namespace
}  // namespace lyceum
