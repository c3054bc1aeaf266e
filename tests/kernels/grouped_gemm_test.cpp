#include "kernels/grouped_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/reference_gemm.h"
#include "kernels/cpu/tile_gemm.h"
#include "kernels/grouped_bank.h"

namespace lyceum {
namespace {

using namespace test;

template <class T>
void check(const Case& c, const CpuStream& stream) {
  for (const bool transpose : {false, true}) {
    auto bank = Bank<T>::template made<T>(c.rows, c.in, c.out, transpose, false, c.gap);
    auto exact = Bank<double>::template made<T>(c.rows, c.in, c.out, transpose, false, c.gap);
    run(stream, bank.product(transpose));
    reference::run(stream, exact.product(transpose));
    for (std::int64_t e = 0; e < bank.table.view().count(); ++e) {
      SCOPED_TRACE(testing::Message() << "expert " << e << (transpose ? " transposed" : ""));
      expect_near(bank.y_of(e), exact.y_of(e), tolerance<T>());
      for (std::int64_t r = c.rows[static_cast<std::size_t>(e)]; r < bank.y_of(e).rows; ++r) {
        for (std::int64_t j = 0; j < bank.y_of(e).cols; ++j)
          ASSERT_EQ(static_cast<float>(bank.y_of(e).row(r)[j]), 0.0f);
      }
    }
  }
  auto bank = Bank<T>::template made<T>(c.rows, c.in, c.out, false, true, c.gap);
  auto exact = Bank<double>::template made<T>(c.rows, c.in, c.out, false, true, c.gap);
  run(stream, bank.weight_grad());
  reference::run(stream, exact.weight_grad());
  for (std::size_t e = 0; e < bank.gradients.size(); ++e) {
    SCOPED_TRACE(testing::Message() << "gradient of expert " << e);
    expect_near(bank.gradients[e], exact.gradients[e], std::is_same_v<T, double> ? 1e-10 : 2e-4);
    EXPECT_TRUE(bank.owned_gradients[e]->gaps_untouched());
  }
}

class Grouped : public testing::TestWithParam<Case> {};

TEST_P(Grouped, AgreesWithTheReference) {
  const CpuStream stream(2);
  check<float>(GetParam(), stream);
  check<double>(GetParam(), stream);
  check<bfloat16>(GetParam(), stream);
}

TEST_P(Grouped, NativeBf16AgreesWithTheReference) {
  const CpuStream stream(2);
  force_native_bf16(stream, true);
  check<bfloat16>(GetParam(), stream);
}

INSTANTIATE_TEST_SUITE_P(Cases, Grouped, testing::Values(uneven, all_empty, one, large, aligned));

template <class T>
void check_repeatable() {
  std::vector<std::vector<T>> results;
  for (const int repeat : {0, 1}) {
    const CpuStream stream(2);
    auto bank = Bank<T>::template made<T>(uneven.rows, uneven.in, uneven.out, false, false);
    run(stream, bank.product(false));
    results.push_back(bank.y);
    ASSERT_EQ(std::memcmp(results[0].data(), bank.y.data(), bank.y.size() * sizeof(T)), 0) << "run " << repeat;
  }
}

TEST(GroupedGemm, GivesTheSameBitsTwice) {
  check_repeatable<float>();
  check_repeatable<bfloat16>();
}

TEST(GroupedGemm, NanStaysInItsRow) {
  const CpuStream stream(2);
  auto bank = Bank<float>::made<float>({5, 6}, {8, 8}, {4, 4}, false, false);
  bank.x[3] = std::numeric_limits<float>::quiet_NaN();
  run(stream, bank.product(false));
  for (std::int64_t e = 0; e < 2; ++e) {
    for (std::int64_t r = 0; r < bank.y_of(e).rows; ++r) {
      for (std::int64_t c = 0; c < 4; ++c) EXPECT_EQ(std::isnan(bank.y_of(e).row(r)[c]), e == 0 && r == 0);
    }
  }
}

TEST(GroupedGemm, RefusesWeightsThatDoNotFit) {
  const CpuStream stream(1);
  auto bank = Bank<float>::made<float>({5}, {8}, {4}, false, false);
  EXPECT_THROW(run(stream, bank.product(true)), Error);
  bank.weights.clear();
  EXPECT_THROW(run(stream, bank.product(false)), Error);
}

}  // namespace
}  // namespace lyceum
