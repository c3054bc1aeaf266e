#include "kernels/grouped_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/grouped_bank.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using namespace test;

class Grouped : public testing::TestWithParam<Case> {};

TEST_P(Grouped, AgreesWithTheReference) {
  const auto run = [](const auto& grouped) { launch_on(2, grouped); };
  expect_right_products<float>(GetParam(), run);
  expect_right_products<double>(GetParam(), run);
  expect_right_products<bfloat16>(GetParam(), run);
}

INSTANTIATE_TEST_SUITE_P(Cases, Grouped, testing::Values(uneven, all_empty, one, large, aligned));

class PickedGrouped : public testing::TestWithParam<Case> {};

TEST_P(PickedGrouped, AgreesWithTheReference) {
  const auto run = [](const auto& grouped) { launch_on(2, grouped); };
  expect_right_picked_products<float>(GetParam(), run);
  expect_right_picked_products<double>(GetParam(), run);
  expect_right_picked_products<bfloat16>(GetParam(), run);
}

INSTANTIATE_TEST_SUITE_P(Cases, PickedGrouped,
                         testing::Values(copies, aligned_copies, all_empty, one, Case{{400}, {40}, {800}}));

TEST(GroupedGemm, RefusesRowsThatAreNotThere) {
  for (const std::int64_t beyond : {0, 1}) {
    auto bank = Bank<float>::made<float>({5}, {8}, {4}, true, false);
    bank.pick<float>(true, 0);
    bank.source[2] = (bank.tokens->view().rows + beyond) * bank.picked.divisor - 1;
    if (beyond) {
      EXPECT_THROW(launch_on(2, bank.product(true)), Error);
    } else {
      EXPECT_NO_THROW(launch_on(2, bank.product(true)));
    }
  }
}

template <class T>
void check_bank_repeatable() {
  std::vector<std::vector<T>> results;
  for (const int repeat : {0, 1}) {
    auto bank = Bank<T>::template made<T>(uneven.rows, uneven.in, uneven.out, false, false);
    launch_on(2, bank.product(false));
    results.push_back(bank.y);
    ASSERT_EQ(std::memcmp(results[0].data(), bank.y.data(), bank.y.size() * sizeof(T)), 0) << "run " << repeat;
  }
}

TEST(GroupedGemm, GivesTheSameBitsTwice) {
  check_bank_repeatable<float>();
  check_bank_repeatable<bfloat16>();
}

TEST(GroupedGemm, NanStaysInItsRow) {
  auto bank = Bank<float>::made<float>({5, 6}, {8, 8}, {4, 4}, false, false);
  bank.x[3] = std::numeric_limits<float>::quiet_NaN();
  launch_on(2, bank.product(false));
  for (std::int64_t e = 0; e < 2; ++e) {
    for (std::int64_t r = 0; r < bank.y_of(e).rows; ++r) {
      for (std::int64_t c = 0; c < 4; ++c) EXPECT_EQ(std::isnan(bank.y_of(e).row(r)[c]), e == 0 && r == 0);
    }
  }
}

TEST(GroupedGemm, RefusesWeightsThatDoNotFit) {
  auto bank = Bank<float>::made<float>({5}, {8}, {4}, false, false);
  EXPECT_THROW(launch_on(2, bank.product(true)), Error);
  bank.weights.clear();
  EXPECT_THROW(launch_on(2, bank.product(false)), Error);
}

}  // namespace
}  // namespace lyceum
