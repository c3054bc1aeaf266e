#include "io/report/timeline_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "parallel/pipeline/simulate.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::Not;

std::size_t count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<std::size_t>(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

Timeline run(ScheduleKind kind, const PipelineShape& shape) {
  return simulate(make_schedule(kind, shape), equal_costs(shape, {}));
}

TEST(TimelineSvg, HasABoxAnActionAndARowARank) {
  const std::string svg =
      timeline_svg(run(ScheduleKind::one_forward_one_backward, {.ranks = 3, .microbatches = 4}), "three & four", "ms");
  EXPECT_EQ(count(svg, "<g><title>[FB][0-3]: "), 3U * 4 * 2);
  EXPECT_EQ(count(svg, "class=\"in\"[^>]*>[FB][0-3]<"), 3U * 4 * 2);
  EXPECT_EQ(count(svg, "class=\"rank\""), 3U);
  EXPECT_THAT(svg, HasSubstr("three &amp; four"));
  EXPECT_THAT(svg, HasSubstr("makespan 18 ms, bubble 33.3 % of it"));  // 2 / (4 + 2)
  EXPECT_THAT(svg, HasSubstr("<title>B3: 14 to 16</title>"));          // the box is on rank 1
  EXPECT_THAT(svg, Not(HasSubstr("weights")));
}

TEST(TimelineSvg, BoxesStandWhereTheirTimeIs) {
  const std::string svg = timeline_svg(run(ScheduleKind::gpipe, {.ranks = 2, .microbatches = 2}), "");
  // The step takes nine units of time. The first box of the second rank begins after one of them.
  const std::regex box("<title>F0: 1 to 2</title><rect x=\"([0-9.]+)\" y=\"90.0\" width=\"([0-9.]+)\"");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(svg, found, box));
  const double unit = std::stod(found[2]) + 1;
  EXPECT_NEAR(std::stod(found[1]), 64 + unit + 0.5, 0.02);
  EXPECT_NEAR(unit, 560.0 / 9, 0.02);
}

TEST(TimelineSvg, KindsAndStages) {
  const std::string halves = timeline_svg(run(ScheduleKind::zero_bubble, {.ranks = 2, .microbatches = 2}), "");
  EXPECT_THAT(halves, HasSubstr("backward, input"));
  EXPECT_THAT(halves, HasSubstr("backward, weights"));
  EXPECT_THAT(halves, Not(HasSubstr("paler")));
  const std::string deep = timeline_svg(run(ScheduleKind::interleaved, {2, 2, 2}), "");
  EXPECT_THAT(deep, HasSubstr("paler"));
  EXPECT_THAT(deep, HasSubstr(">3B1<"));
}

TEST(TimelineSvg, NothingAtAll) {
  const std::string svg = timeline_svg(Timeline{.shape = {}, .ranks = {{}}}, "empty");
  EXPECT_THAT(svg, HasSubstr("makespan 0, bubble 0.0 % of it"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace lyceum
