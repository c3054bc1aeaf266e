#include "io/run/summary.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <random>

#include "core/error.h"
#include "io/run/metrics.h"
#include "support/nan.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using Json = nlohmann::ordered_json;

class SummaryTest : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(file_, std::ios::binary) << text; }
  /// Returns the steps and first values that for_each_step() finds.
  std::map<std::int64_t, std::optional<double>> steps(std::string_view key = "loss") const {
    std::map<std::int64_t, std::optional<double>> found;
    const std::array keys{key};
    std::int64_t last = std::numeric_limits<std::int64_t>::min();
    for_each_step(file_, measure_metrics(file_), keys, [&](std::int64_t step, MetricValues values) {
      EXPECT_GT(step, last);
      last = step;
      found[step] = values[0];
    });
    return found;
  }
  RunSummary summary(std::vector<std::int64_t> at_steps = {}, std::vector<std::int64_t> at_tokens = {}) const {
    return summarize_run(file_, measure_metrics(file_), at_steps, at_tokens);
  }
  /// Returns the message of the bad_input Error that reading the file throws.
  std::string complaint() const {
    try {
      summary();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      return error.what();
    }
    return "no error";
  }

  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_.path() / "metrics.jsonl";
};

TEST_F(SummaryTest, LaterLinesSupersedeEarlierOnes) {
  write(
      "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n{\"step\":3,\"loss\":3}\n{\"step\":4,\"loss\":4}\n"
      "{\"step\":3,\"loss\":30}\n{\"loss\":40,\"step\":4}\n{\"step\":5,\"loss\":50}\n{\"step\":2,\"loss\":20}\n");
  EXPECT_EQ(steps(), (std::map<std::int64_t, std::optional<double>>{{1, 1}, {2, 20}}));
  const MetricsExtent extent = measure_metrics(file_);
  EXPECT_EQ(extent.lines, 8);
  EXPECT_EQ(extent.first_step, 1);
  EXPECT_EQ(extent.last_step, 2);
  write("{\"step\":5,\"loss\":5}\n{\"step\":1,\"loss\":1}\n{\"step\":1,\"loss\":10}\n{\"step\":3,\"loss\":3}\n");
  EXPECT_EQ(steps(), (std::map<std::int64_t, std::optional<double>>{{1, 10}, {3, 3}}));
}

// The same lines as for the simple rule: for each line, no later line has the same or a lower step.
TEST_F(SummaryTest, RandomRestartsAgreeWithTheSimpleRule) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::pair<std::int64_t, double>> lines;
    std::string text;
    std::int64_t step = 0;
    for (int i = 0; i < 40; ++i) {
      step = random() % 6 == 0 ? std::max<std::int64_t>(1, step - static_cast<std::int64_t>(random() % 8))
                               : step + 1 + static_cast<std::int64_t>(random() % 2);
      lines.emplace_back(step, i);
      text += Json{{"step", step}, {"loss", i}}.dump() + "\n";
    }
    std::map<std::int64_t, std::optional<double>> expected;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const bool counts = std::all_of(lines.begin() + static_cast<std::ptrdiff_t>(i) + 1, lines.end(),
                                      [&](const auto& later) { return later.first > lines[i].first; });
      if (counts) expected[lines[i].first] = lines[i].second;
    }
    write(text);
    ASSERT_EQ(steps(), expected) << text;
  }
}

TEST_F(SummaryTest, AnIncompleteLastLineAndZerosAreSkipped) {
  write("{\"step\":1,\"loss\":1}\n{\"step\":2,\"lo");
  EXPECT_EQ(steps().size(), 1U);
  write(std::string("{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n") + std::string(100, '\0') + "\n");
  EXPECT_EQ(steps().size(), 2U);
  write("{\"step\":1,\"loss\":1}");
  EXPECT_TRUE(steps().empty());
  EXPECT_EQ(summary().steps, 0);
  EXPECT_FALSE(summary().seconds);
  write("");
  EXPECT_TRUE(steps().empty());
}

TEST_F(SummaryTest, LinesAddedAfterTheMeasurementAreNotRead) {
  write("{\"step\":1,\"loss\":1}\n");
  const MetricsExtent extent = measure_metrics(file_);
  write("{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n");
  EXPECT_EQ(summarize_run(file_, extent, {}, {}).steps, 1);
}

TEST_F(SummaryTest, DamagedLinesAreNamed) {
  for (const char* line : {"nonsense", "[1]", "{\"loss\":1}", "{\"step\":1.5}", "{\"step\":2,\"loss\":}", "{\"step\":2",
                           "{\"step\":2,\"loss\":NaN}", "{\"step\":18446744073709551615}", "{\"a\":{\"step\":2}}"}) {
    write(std::string("{\"step\":1,\"loss\":1}\n") + line + "\n{\"step\":3,\"loss\":1}\n");
    EXPECT_NE(complaint().find(file_.string() + ": line 2 is damaged"), std::string::npos) << line << complaint();
  }
  file_ = directory_.path() / "none";
  EXPECT_NE(complaint().find("cannot be opened"), std::string::npos) << complaint();
}

TEST_F(SummaryTest, NullIsNotFiniteAndOtherValuesAreNotNumbers) {
  write(
      "{\"step\":1,\"loss\":null,\"nonfinite\":[\"loss\"]}\n{\"step\":2,\"loss\":\"3\"}\n"
      "{\"step\":3,\"nested\":{\"loss\":4},\"list\":[5]}\n{\"step\":4,\"loss\":6}\n");
  const auto found = steps();
  EXPECT_TRUE(std::isnan(found.at(1).value()));
  EXPECT_FALSE(found.at(2) || found.at(3));
  EXPECT_EQ(found.at(4), 6);
  EXPECT_EQ(summary().not_finite, 1);
}

TEST_F(SummaryTest, NamesThatAreNotUtf8AreRead) {
  MetricsLog log(file_, -1);
  log.append({{"step", 1}, {"loss", 2.5}, {"valid_loss/\xff", 3.0}});
  EXPECT_EQ(steps(), (std::map<std::int64_t, std::optional<double>>{{1, 2.5}}));
}

TEST_F(SummaryTest, NumbersAreThoseOfTheFile) {
  std::string text;
  std::vector<double> losses, speeds;
  std::mt19937 random(3);
  for (int step = 1; step <= 400; ++step) {
    losses.push_back(10.0 / step + 0.001 * static_cast<double>(random() % 100));
    speeds.push_back(900 + static_cast<double>(random() % 200));
    Json line{{"step", step},
              {"loss", losses.back()},
              {"grad_norm", 1.0},
              {"tokens", 64 * step},
              {"step_ms", 250},
              {"tokens_per_second", speeds.back()},
              {"mfu", 0.5},
              {"load_imbalance", 3},
              {"idle_experts", 2},
              {"dead_experts", 1},
              {"skipped", step > 100 ? 4 : 0},
              {"rollbacks", 1},
              {"memory_peak_bytes", 1000 - step},
              {"resident_peak_bytes", 5000 + step}};
    if (step % 150 == 0) line["valid_loss"] = step == 150 ? 2.0 : 2.5;
    text += line.dump() + "\n";
  }
  write(text);
  const RunSummary run = summary({1, 200, 401}, {64, 12830, 64 * 400});
  const auto mean = [&](std::size_t first, std::size_t last) {  // of steps (first, last]
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += losses[i];
    return sum / static_cast<double>(last - first);
  };
  EXPECT_EQ(run.steps, 400);
  EXPECT_EQ(run.tokens, 64 * 400);
  EXPECT_NEAR(run.seconds.value(), 100, 1e-9);
  EXPECT_EQ(run.at_steps[0].loss, losses[0]);
  EXPECT_NEAR(run.at_steps[1].loss.value(), mean(190, 200), 1e-12);
  EXPECT_EQ(run.at_steps[1].valid.value().step, 150);
  EXPECT_FALSE(run.at_steps[2].loss);
  EXPECT_EQ(run.at_tokens[0].loss, losses[0]);
  // 12830 tokens are reached within step 201; the last step before has 12800, and the mean covers (12188.5, 12830].
  EXPECT_NEAR(run.at_tokens[1].loss.value(), mean(190, 200), 1e-12);
  EXPECT_NEAR(run.at_tokens[2].loss.value(), mean(380, 400), 1e-12);
  EXPECT_NEAR(run.loss.value(), mean(380, 400), 1e-12);
  EXPECT_EQ(run.last_valid.value().step, 300);
  EXPECT_EQ(run.lowest_valid.value().step, 150);
  EXPECT_EQ(run.max_violation, 2);
  EXPECT_EQ(run.idle_experts, 2);
  EXPECT_EQ(run.dead_experts, 1);
  EXPECT_EQ(run.skipped, 4);
  EXPECT_EQ(run.rollbacks, 1);
  EXPECT_EQ(run.peak_bytes, 999);
  EXPECT_EQ(run.resident_bytes, 5400);
  std::ranges::sort(speeds);
  EXPECT_NEAR(run.tokens_per_second.value(), speeds[199], 0.0026 * speeds[199]);
  EXPECT_NEAR(run.mfu.value(), 0.5, 0.00126);
}

TEST_F(SummaryTest, KeysThatOlderVersionsLackAreMissing) {
  write("{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n");
  const RunSummary run = summary({2}, {100});
  EXPECT_EQ(run.at_steps[0].loss, 2);
  EXPECT_FALSE(run.at_tokens[0].loss || run.tokens || run.seconds || run.mfu || run.max_violation || run.skipped);
  EXPECT_EQ(run.curves.size(), 1U);
}

TEST_F(SummaryTest, BatchesOfDifferentSizesAreComparedByTokens) {
  write("{\"step\":1,\"loss\":4,\"tokens\":100}\n{\"step\":2,\"loss\":2,\"tokens\":1000}\n");
  EXPECT_EQ(summary({}, {500}).at_tokens[0].loss, 4) << "no step ends in the last 5 %: the last one before";
  EXPECT_FALSE(summary({}, {50}).at_tokens[0].loss) << "not even one step";
  EXPECT_FALSE(summary({}, {1001}).at_tokens[0].loss) << "not reached";
}

TEST_F(SummaryTest, ALossThatIsNeverFiniteIsNan) {
  write("{\"step\":1,\"loss\":null,\"grad_norm\":null}\n");
  EXPECT_TRUE(std::isnan(summary({1}).at_steps[0].loss.value()));
  EXPECT_TRUE(std::isnan(summary().loss.value()));
}

TEST(RunCurve, KeepsExtremesAndMeansInBoundedMemory) {
  constexpr std::int64_t steps = 100'000;
  RunCurve curve(1, steps);
  for (std::int64_t step = 1; step <= steps; ++step) {
    const double value = step == 54'321 ? 50 : step == 12'345 ? -50 : step == 77'777 ? nan : 1;
    curve.add({.step = step, .tokens = 2.0 * static_cast<double>(step), .seconds = 0, .value = value});
  }
  const std::vector<CurvePoint> points = curve.points(), means = curve.means();
  EXPECT_LE(points.size(), 5U * RunCurve::most_buckets);
  EXPECT_EQ(means.size(), static_cast<std::size_t>(RunCurve::most_buckets));
  EXPECT_TRUE(std::ranges::is_sorted(points, {}, &CurvePoint::step));
  const auto at = [&](std::int64_t step) { return std::ranges::find(points, step, &CurvePoint::step); };
  EXPECT_EQ(at(54'321)->value, 50);
  EXPECT_EQ(at(54'321)->tokens, 2.0 * 54'321);
  EXPECT_EQ(at(12'345)->value, -50);
  EXPECT_TRUE(std::isnan(at(77'777)->value));
  EXPECT_EQ(points.front().step, 1);
  EXPECT_EQ(points.back().step, steps);
  const auto spike = std::ranges::max_element(means, {}, &CurvePoint::value);
  EXPECT_LE(spike->value, 1 + 49.0 / 333);
  EXPECT_GE(spike->value, 1 + 49.0 / 334);
  EXPECT_TRUE(curve.thinned());
}

TEST(RunCurve, ShortCurvesAreKeptWhole) {
  RunCurve curve(0, 299);
  for (std::int64_t step = 0; step < 300; ++step) {
    curve.add({.step = step, .tokens = 0, .seconds = 0, .value = static_cast<double>(step)});
  }
  EXPECT_EQ(curve.points().size(), 300U);
  EXPECT_FALSE(curve.thinned());
  RunCurve single(5, 5);
  single.add({.step = 5, .tokens = 0, .seconds = 0, .value = nan});
  EXPECT_EQ(single.points().size(), 1U);
  EXPECT_TRUE(std::isnan(single.means()[0].value));
}

TEST(CommonMilestones, AreThoseOfTheShortestRun) {
  const std::vector<MetricsExtent> runs{{.lines = 10, .first_step = 1, .last_step = 10, .tokens = 1e6},
                                        {.lines = 100, .first_step = 1, .last_step = 100},
                                        {.lines = 0}};
  EXPECT_EQ(common_steps(runs), (std::vector<std::int64_t>{1, 2, 5, 10}));
  EXPECT_EQ(common_tokens(runs), (std::vector<std::int64_t>{125'000, 250'000, 500'000, 1'000'000}));
  EXPECT_TRUE(common_steps({}).empty());
  EXPECT_EQ(common_steps(std::vector<MetricsExtent>{{.lines = 1, .first_step = 1, .last_step = 1}}),
            (std::vector<std::int64_t>{1}));
}

TEST_F(SummaryTest, LinesOfIntervalsHaveTheDurationOfAllTheirSteps) {
  write(
      "{\"step\":1,\"step_ms\":500,\"interval_steps\":1,\"interval_ms\":500}\n"
      "{\"step\":10,\"step_ms\":200,\"interval_steps\":9,\"interval_ms\":2000}\n"
      "{\"step\":11,\"step_ms\":250}\n");
  EXPECT_NEAR(summary().seconds.value(), 2.75, 1e-12);
  EXPECT_EQ(summary().steps, 11);
}

}  // namespace
}  // namespace lyceum
