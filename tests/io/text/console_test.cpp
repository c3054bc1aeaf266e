#include "io/text/console.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "support/nan.h"

namespace lyceum {
namespace {

TEST(Console, HumanDurations) {
  EXPECT_EQ(human_duration(0.2), "<1s");
  EXPECT_EQ(human_duration(42.9), "42s");
  EXPECT_EQ(human_duration(185), "3m05s");
  EXPECT_EQ(human_duration(3720), "1h02m");
  EXPECT_EQ(human_duration(2 * 86400 + 3 * 3600), "2d03h");
  EXPECT_EQ(human_duration(nan), "-");
  EXPECT_EQ(human_duration(-1), "-");
  EXPECT_EQ(human_duration(std::numeric_limits<double>::infinity()), "-");
}

ProgressLine example() {
  return {.step = 120,
          .steps = 1000,
          .loss = 4.8123,
          .grad_norm = 0.873,
          .lr = 6e-4,
          .step_seconds = 0.6637,
          .tokens_per_second = 12345,
          .mfu = 0.341,
          .eta_seconds = 3725,
          .load_imbalance = 1.83};
}

TEST(Console, ALineHoldsItsNumbersUnderTheirNames) {
  const std::string header = progress_header(1000), line = progress_text(example());
  EXPECT_EQ(line.size(), header.size());
  for (const char* word : {"120/1000", "4.8123", "0.873", "6.00e-04", "663.7", "12.3 k", "34.1%", "1.83", "1h02m"}) {
    EXPECT_NE(line.find(word), std::string::npos) << word << " in " << line;
  }
  // Columns are right-aligned: a name ends where its value ends.
  EXPECT_EQ(header.find("loss") + 4, line.find("4.8123") + 6);
  EXPECT_EQ(header.find("ETA") + 3, line.find("1h02m") + 5);
}

TEST(Console, NamesTheImbalanceOfExpertRanks) {
  ProgressLine line = example();
  EXPECT_EQ(progress_text(line).find("ranks"), std::string::npos);
  line.rank_imbalance = 1.374;
  EXPECT_NE(progress_text(line).find("1h02m  ranks 1.37"), std::string::npos);
}

/// Numbers of a column have the same number of decimals, so that their decimal points are aligned.
TEST(Console, DecimalsOfAColumnAreAligned) {
  const auto text = [](double norm, double seconds) {
    ProgressLine line = example();
    line.grad_norm = norm;
    line.step_seconds = seconds;
    return progress_text(line);
  };
  const std::string one = text(1, 0.08741), other = text(0.67, 0.1);
  for (std::size_t i = one.find('.'); i < one.size(); ++i)
    EXPECT_EQ(one[i] == '.', other[i] == '.') << one << '\n' << other;
  EXPECT_NE(one.find(" 1.000 "), std::string::npos) << one;
  EXPECT_NE(other.find(" 100.0 "), std::string::npos) << other;
  for (const double big : {1e5, 1e12, 1e-7}) EXPECT_EQ(text(big, big).size(), one.size()) << text(big, big);
}

TEST(Console, TheLossOfModulesFollowsTheColumns) {
  ProgressLine line = example();
  const std::string without = progress_text(line);
  line.mtp_loss = 1.25;
  EXPECT_EQ(progress_text(line), without + "  mtp 1.2500");
  line.skipped = 3;
  EXPECT_EQ(progress_text(line), without + "  mtp 1.2500  3 skipped");
}

TEST(Console, UnknownAndNonFiniteValuesAreAligned) {
  ProgressLine line = example();
  line.loss = line.grad_norm = -nan;  // the sign of 0.0 / 0.0
  line.mfu.reset();
  line.eta_seconds.reset();
  line.load_imbalance = -nan;
  EXPECT_EQ(progress_text(line).size(), progress_header(1000).size());
  EXPECT_NE(progress_text(line).find("nan"), std::string::npos);
  EXPECT_EQ(progress_text(line).find("-nan"), std::string::npos) << progress_text(line);
  line.load_imbalance.reset();
  line.skipped = 2;
  EXPECT_TRUE(progress_text(line).ends_with("2 skipped"));
  line.step = 999999;
  line.steps = 1000000;
  EXPECT_EQ(progress_text(line).find('\n'), std::string::npos);
}

TEST(Console, TheBarFillsAndFits) {
  ProgressLine line = example();
  for (const int columns : {20, 40, 200}) {
    for (const std::int64_t step : {0, 1, 500, 999, 1000, 1200}) {
      line.step = step;
      EXPECT_LE(static_cast<int>(progress_bar(line, columns).size()), std::max(columns, 25));
    }
  }
  line.step = 500;
  const std::string half = progress_bar(line, 200);
  EXPECT_EQ(std::count(half.begin(), half.end(), '='), 30);
  EXPECT_NE(half.find("50%"), std::string::npos);
  line.step = 0;
  line.steps = 0;
  EXPECT_NE(progress_bar(line, 40).find("0%"), std::string::npos);
}

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(Console, AFileGetsOneHeaderAndNoBar) {
  std::ostringstream out;
  {
    Console console(out, 0);
    for (int i = 0; i < 50; ++i) console.step(example());
    console.note("saved step 50");
    console.tick(example());
  }
  EXPECT_EQ(occurrences(out.str(), "grad norm"), 1u);
  EXPECT_EQ(occurrences(out.str(), "\n"), 52u);
  EXPECT_EQ(out.str().find_first_of("\r\x1b["), std::string::npos);
  EXPECT_TRUE(out.str().ends_with("saved step 50\n"));
}

TEST(Console, ATerminalGetsHeadersNowAndThenAndTheBarLast) {
  std::ostringstream out;
  {
    Console console(out, 80);
    for (int i = 0; i < 50; ++i) console.step(example());
    console.note("validation");
    EXPECT_TRUE(out.str().ends_with(progress_bar(example(), 79)));
  }
  EXPECT_EQ(occurrences(out.str(), "grad norm"), 3u);
  EXPECT_TRUE(out.str().ends_with("\r\x1b[K")) << "the bar is cleared at the end";
}

}  // namespace
}  // namespace lyceum
