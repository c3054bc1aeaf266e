#include "core/real_text.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "support/nan.h"

namespace lyceum {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

TEST(RealText, FiniteNumbersHaveTheirFormat) {
  EXPECT_EQ(real_text(-1.5), "-1.5");
  EXPECT_EQ(real_text(0.1), "0.1");
  EXPECT_EQ(real_text(0.1f), "0.1") << "the shortest text of a float";
  EXPECT_EQ(real_text(2.0 / 3, ".4f"), "0.6667");
  EXPECT_EQ(real_text(123456.0, ".3g"), "1.23e+05");
  EXPECT_EQ(real_text(1.0, ">6.2f"), "  1.00");
}

TEST(RealText, NanHasNoSignAndInfinitiesHaveOne) {
  for (const char* format : {"", ".4f", ".3g", ".2e"}) {
    EXPECT_EQ(real_text(nan, format), "nan");
    EXPECT_EQ(real_text(-nan, format), "nan");
    EXPECT_EQ(real_text(-std::numeric_limits<float>::quiet_NaN(), format), "nan");
    EXPECT_EQ(real_text(inf, format), "inf");
    EXPECT_EQ(real_text(-inf, format), "-inf");
  }
}

TEST(RealText, MessagesFollowIt) {
  EXPECT_EQ(format_message("{} {:.2f} {:g} {} {}", {-nan, -nan, -nan, -inf, 0.5}), "nan nan nan -inf 0.5");
}

}  // namespace
}  // namespace lyceum
