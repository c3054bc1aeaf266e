#include "kernels/grouped_activation.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/activated_bank.h"
#include "support/launch_on.h"
#include "support/tested_device.h"

namespace lyceum {
namespace {

using namespace test;

const auto launch_it = [](const auto& work) { launch_on(2, work); };
const auto launch_forward = [](auto& bank) { launch_on(2, bank.forward()); };
const auto launch_backward = [](auto& bank) { launch_on(2, bank.backward()); };

template <class T>
class GroupedActivation : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(GroupedActivation, Types);

TYPED_TEST(GroupedActivation, AgreesWithTheFormulas) {
  for (const Activation kind : activations) {
    for (const Case& c : {uneven, all_empty, one, aligned}) {
      expect_right_forward<TypeParam>(kind, c, false, launch_forward);
      expect_right_backward<TypeParam>(kind, c, false, launch_backward);
    }
    for (const Case& c : {copies, aligned_copies, all_empty}) {
      expect_right_forward<TypeParam>(kind, c, true, launch_forward);
      expect_right_backward<TypeParam>(kind, c, true, launch_backward);
    }
  }
}

TYPED_TEST(GroupedActivation, HasTheBitsOfTwoKernels) {
  for (const Activation kind : activations) {
    for (const Case& c : {uneven, aligned}) expect_bits_of_two_kernels<TypeParam>(kind, c, false, launch_it);
    for (const Case& c : {copies, aligned_copies}) expect_bits_of_two_kernels<TypeParam>(kind, c, true, launch_it);
  }
}

/// The list of biases cannot be mirrored on a device, so these cases run only on the CPU. The gradient checks of
/// ExpertBank and GatedBank run biases on any device.
TYPED_TEST(GroupedActivation, AddsBiases) {
  if (tests_run_on_gpu()) return;
  const auto forward = [](auto& bank) { lyceum::run(CpuStream(2), bank.forward()); };
  const auto backward = [](auto& bank) { lyceum::run(CpuStream(2), bank.backward()); };
  for (const Activation kind : activations) {
    for (const Case& c : {uneven, all_empty, one, aligned}) {
      expect_right_forward<TypeParam>(kind, c, false, forward, true);
      expect_right_backward<TypeParam>(kind, c, false, backward, true);
    }
    expect_right_forward<TypeParam>(kind, copies, true, forward, true);
    expect_right_backward<TypeParam>(kind, copies, true, backward, true);
  }
}

TYPED_TEST(GroupedActivation, NanStaysInItsRow) {
  const auto is_nan = [](TypeParam value) { return std::isnan(as_double(value)); };
  const TypeParam nan(std::numeric_limits<float>::quiet_NaN());
  for (const Activation kind : activations) {
    const Case c{{5, 6}, {8, 16}, {16, 8}, 8};
    auto bank = ActivatedBank<TypeParam>::template made<TypeParam>(kind, c, true);
    auto back = ActivatedBank<TypeParam>::template made<TypeParam>(kind, c, false);
    bank.bank.x[8 * 2 + 3] = back.bank.x[8 * 2 + 3] = nan;
    back.hidden_of(1).row(4)[7] = nan;
    launch_it(bank.forward());
    launch_it(back.backward());
    for (std::int64_t e = 0; e < 2; ++e) {
      for (std::int64_t r = 0; r < bank.activated_of(e).rows; ++r) {
        for (std::int64_t col = 0; col < c.out[static_cast<std::size_t>(e)]; ++col) {
          const bool poisoned = e == 0 && r == 2, element = e == 1 && r == 4 && col == 7;
          EXPECT_EQ(is_nan(bank.hidden_of(e).row(r)[col]), poisoned);
          EXPECT_EQ(is_nan(bank.activated_of(e).row(r)[col]), poisoned);
          EXPECT_EQ(is_nan(back.d_hidden_of(e).row(r)[col]), poisoned || element);
          EXPECT_EQ(is_nan(back.activated_of(e).row(r)[col]), element);
        }
      }
    }
  }
}

TEST(GroupedActivation, RefusesWidthsThatDoNotFit) {
  for (const Activation kind : activations) {
    auto bank = ActivatedBank<float>::made<float>(kind, {{5}, {8}, {4}}, true);
    const SegmentLayout odd(CpuStream(1), bank.bank.table, {3});
    GemmThenActivation<float> work = bank.forward();
    work.activated = odd.over(bank.activated.data());
    EXPECT_THROW(launch_it(work), Error);
  }
}

}  // namespace
}  // namespace lyceum
