#include "io/data/records/skipped.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lyceum {
namespace {

TEST(Skipped, ReasonsAreBounded) {
  Skipped skipped, later;
  for (int i = 0; i < 20000; ++i) {
    (i < 100 ? skipped : later).add("whose key is " + std::to_string(i), "a:" + std::to_string(i));
  }
  skipped.add(later);
  EXPECT_EQ(skipped.count(), 20000);
  EXPECT_LT(skipped.text().size(), 2000);
  EXPECT_THAT(skipped.text(), testing::HasSubstr("for other reasons (a:30, a:31, a:32, …)"));
}

}  // namespace
}  // namespace lyceum
