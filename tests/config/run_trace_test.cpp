#include <gtest/gtest.h>

#include "config/run.h"

namespace lyceum {
namespace {

TEST(TracedSteps, AreOneStepOrARange) {
  const auto steps = [](const char* text) {
    RunConfig run;
    run.trace_steps = text;
    return traced_steps(run);
  };
  EXPECT_EQ(steps("20-22").value().first, 20);
  EXPECT_EQ(steps("20-22").value().last, 22);
  EXPECT_EQ(steps("7").value().first, 7);
  EXPECT_EQ(steps("7").value().last, 7);
  for (const char* wrong : {"", "-", "3-", "-3", "3-2", "0", "1-2-3", "1 - 2", "99999999999999999999"}) {
    EXPECT_FALSE(steps(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace lyceum
