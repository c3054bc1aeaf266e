#include "train/step/recent_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lyceum {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

OptimConfig skipping(double above, std::int64_t window) {
  OptimConfig optim;
  optim.skip_above = above;
  optim.skip_window = window;
  return optim;
}

TEST(RecentSteps, LimitsAreMeanPlusDeviations) {
  const OptimConfig optim = skipping(2, 4);
  RecentSteps recent;
  for (const double loss : {100.0, 2.0, 4.0, 4.0, 6.0}) recent.add(loss, 10 * loss, optim);
  // The last four losses have mean 4 and deviation √((4 + 0 + 0 + 4) / 3).
  const StepLimits limits = recent.limits(optim);
  EXPECT_DOUBLE_EQ(limits.loss, 4 + 2 * std::sqrt(8.0 / 3));
  EXPECT_DOUBLE_EQ(limits.norm, 40 + 20 * std::sqrt(8.0 / 3));
}

TEST(RecentSteps, NothingIsLimitedBeforeTheWindowIsFull) {
  const OptimConfig optim = skipping(6, 3);
  RecentSteps recent;
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(recent.limits(optim).loss, infinity) << step;
    EXPECT_EQ(recent.limits(optim).norm, infinity) << step;
    recent.add(1 + step, 1, optim);
  }
  EXPECT_DOUBLE_EQ(recent.limits(optim).loss, 2 + 6);
  EXPECT_EQ(recent.limits(optim).norm, 1) << "equal norms";
  EXPECT_EQ(recent.limits(skipping(6, 4)).loss, infinity) << "a longer window of a resumed run";
  EXPECT_DOUBLE_EQ(recent.limits(skipping(6, 2)).loss, 2.5 + 6 * std::sqrt(0.5)) << "a shorter one";
  recent.add(4, 1, skipping(6, 2));
  EXPECT_EQ(recent.losses, (std::deque<double>{3, 4}));
}

TEST(RecentSteps, OffKeepsNothing) {
  RecentSteps recent;
  recent.add(1, 1, skipping(6, 3));
  recent.add(2, 1, skipping(0, 3));
  EXPECT_EQ(recent, RecentSteps{});
  for (int step = 0; step < 9; ++step) recent.add(step, step, OptimConfig{});
  EXPECT_EQ(recent.limits(OptimConfig{}).loss, infinity);
}

TEST(RecentSteps, TextNamesWhatIsAbove) {
  EXPECT_EQ(outlier_text(3, 1, {.loss = 2, .norm = 2}), "loss 3 is above 2");
  EXPECT_EQ(outlier_text(3, 2.5, {.loss = 2, .norm = 2}), "loss 3 is above 2, gradient norm 2.5 is above 2");
  EXPECT_EQ(outlier_text(3, 2.5, {.loss = infinity, .norm = 2}), "gradient norm 2.5 is above 2");
}

}  // namespace
}  // namespace lyceum
