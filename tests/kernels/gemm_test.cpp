#include "kernels/gemm.h"

#include "kernels/gemm_cases.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using test::check_gemm;
using test::odd_sizes;
using test::OwnedMatrix;
using test::same_bits;

void check_all_types(const test::GemmCase& c) {
  const auto run_gemm = [](const auto& gemm) { launch_on(2, gemm); };
  check_gemm<float>(c, run_gemm);
  check_gemm<double>(c, run_gemm);
  check_gemm<bfloat16>(c, run_gemm);
  check_gemm<bfloat16, float>(c, run_gemm);
}

TEST(Gemm, AgreesWithTheReferenceInEveryLayout) {
  for (const auto& [m, k, n] : odd_sizes) {
    for (int flags = 0; flags < 8; ++flags) {
      check_all_types({m, k, n, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, flags % 3});
    }
  }
}

TEST(Gemm, EmptyExtents) {
  for (const bool accumulate : {false, true}) {
    check_all_types({0, 5, 7, false, false, accumulate});
    check_all_types({5, 7, 0, false, true, accumulate});
    check_all_types({5, 0, 7, true, false, accumulate});  // a sum of nothing: zero, or c as it was
  }
}

TEST(Gemm, NanReachesItsRowAndColumnOnly) {
  OwnedMatrix<float> a(40, 50), b(50, 60), c(40, 60);
  a.randomise("a"), b.randomise("b");
  a.view().row(3)[7] = std::numeric_limits<float>::quiet_NaN();
  b.view().row(9)[11] = std::numeric_limits<float>::infinity();
  launch_on(2, Gemm<float>{a.view(), b.view(), c.view()});
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < 60; ++j) {
      EXPECT_EQ(std::isfinite(c.view().row(i)[j]), i != 3 && j != 11) << i << ", " << j;
    }
  }
}

template <class T, class Out>
void check_repeatable(std::int64_t m, std::int64_t k, std::int64_t n) {
  OwnedMatrix<T> a(m, k), b(n, k);
  OwnedMatrix<Out> first(m, n), second(m, n);
  a.randomise("a"), b.randomise("b");
  for (auto* c : {&first, &second}) {
    launch_on(2, Gemm<T, Out>{.a = a.view(), .b = b.view(), .c = c->view(), .transpose_b = true});
  }
  EXPECT_TRUE(same_bits(first.view(), second.view()));
}

TEST(Gemm, GivesTheSameBitsTwice) {
  check_repeatable<float, float>(700, 900, 333);
  check_repeatable<bfloat16, bfloat16>(700, 900, 333);
  check_repeatable<bfloat16, float>(97, 1200, 600);
}

TEST(Gemm, RefusesShapesThatDoNotFit) {
  OwnedMatrix<float> a(3, 4), b(5, 6), c(3, 6);
  EXPECT_THROW(launch_on(2, Gemm<float>{a.view(), b.view(), c.view()}), Error);
}

}  // namespace
}  // namespace lyceum
