// Properties that only the grouped products on the CPU have.
#include <gtest/gtest.h>

#include "kernels/grouped_bank.h"
#include "kernels/native_bf16.h"

namespace lyceum {
namespace {

using namespace test;

class CpuGrouped : public testing::TestWithParam<Case> {};

TEST_P(CpuGrouped, NativeBf16AgreesWithTheReference) {
  const CpuStream stream(2);
  if (!test::force_native_bf16(stream)) return;
  expect_right_products<bfloat16>(GetParam(), [&](const auto& grouped) { run(stream, grouped); });
}

class CpuPicked : public testing::TestWithParam<Case> {};

TEST_P(CpuPicked, NativeBf16AgreesWithTheReference) {
  for (const int threads : {1, 3}) {
    const CpuStream stream(threads);
    if (!test::force_native_bf16(stream)) return;
    expect_right_picked_products<bfloat16>(GetParam(), [&](const auto& grouped) { run(stream, grouped); });
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CpuPicked, testing::Values(copies, aligned_copies, all_empty, one));
INSTANTIATE_TEST_SUITE_P(Cases, CpuGrouped, testing::Values(uneven, all_empty, one, large, aligned));

}  // namespace
}  // namespace lyceum
