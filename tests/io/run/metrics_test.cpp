#include "io/run/metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "core/error.h"
#include "support/file_size_limit.h"
#include "support/nan.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using Json = nlohmann::ordered_json;

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Json record(std::int64_t step, double loss) { return {{"step", step}, {"loss", loss}}; }

class MetricsLogTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_.path() / "metrics.jsonl";
};

TEST_F(MetricsLogTest, KeepsEveryBitAndTheOrderOfKeys) {
  const double third = 1.0 / 3, tiny = 4.9406564584124654e-324, large = 1.7976931348623157e308;
  {
    MetricsLog log(file_, -1);
    log.append({{"step", 1}, {"loss", third}, {"lr", tiny}, {"tokens", std::int64_t{9007199254740993}}});
    EXPECT_EQ(content(file_).back(), '\n') << "a line is written to the file before append returns";
    log.append({{"step", 2}, {"loss", large}});
  }
  std::istringstream lines(content(file_));
  std::string line;
  std::getline(lines, line);
  EXPECT_TRUE(line.starts_with(R"({"step":1,"loss":0.333333)")) << line;
  EXPECT_NE(line.find("9007199254740993"), std::string::npos);
  const Metrics metrics = read_metrics(file_);
  EXPECT_EQ(metrics.at("loss"), (std::vector<MetricPoint>{{1, third}, {2, large}}));
  EXPECT_EQ(metrics.at("lr"), (std::vector<MetricPoint>{{1, tiny}}));
}

TEST_F(MetricsLogTest, NonFiniteNumbersAreNullAndNamed) {
  MetricsLog log(file_, -1);
  log.append({{"step", 1}, {"loss", nan}, {"grad_norm", std::numeric_limits<double>::infinity()}, {"lr", 0.5}});
  log.append(record(2, 1.5));
  const Json line = Json::parse(content(file_).substr(0, content(file_).find('\n')));
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_EQ(line["nonfinite"], (Json{"loss", "grad_norm"}));
  const Metrics metrics = read_metrics(file_);
  ASSERT_EQ(metrics.at("loss").size(), 2u);
  EXPECT_TRUE(std::isnan(metrics.at("loss")[0].value));
  EXPECT_EQ(metrics.at("loss")[1], (MetricPoint{2, 1.5}));
  EXPECT_TRUE(std::isnan(metrics.at("grad_norm")[0].value));
}

TEST_F(MetricsLogTest, ResumeCutsLaterStepsAndATornLine) {
  {
    MetricsLog log(file_, -1);
    for (int step = 0; step <= 5; ++step) log.append(record(step, step));
  }
  const std::string whole = content(file_);
  std::ofstream(file_, std::ios::app) << R"({"step":6,"lo)";
  EXPECT_EQ(read_metrics(file_).at("loss").size(), 6u) << "an incomplete line is skipped";
  {
    const MetricsLog log(file_, 7);
    EXPECT_EQ(log.resumed_at(), 5) << "so 6 and 7 are missing";
    EXPECT_EQ(log.lines_cut(), 1);
  }
  EXPECT_EQ(content(file_), whole) << "and removed on resume";
  {
    MetricsLog log(file_, 3);
    EXPECT_EQ(log.resumed_at(), 3);
    EXPECT_EQ(log.lines_cut(), 2);
    log.append(record(4, 44));
  }
  EXPECT_EQ(read_metrics(file_).at("loss"), (std::vector<MetricPoint>{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 44}}));
  { MetricsLog log(file_, -1); }
  EXPECT_EQ(content(file_), "") << "-1 begins anew";
  EXPECT_TRUE(read_metrics(file_).empty());
}

TEST_F(MetricsLogTest, OfJoinedFilesTheLaterLinesCount) {
  std::ofstream(file_) << R"({"step":1,"loss":1}
{"step":2,"loss":2,"valid_loss":2}
{"step":3,"loss":3}
{"step":2,"loss":22}
)";
  EXPECT_EQ(read_metrics(file_), (Metrics{{"loss", {{1, 1}, {2, 22}}}}));
}

TEST_F(MetricsLogTest, ARunThatBeginsAgainCountsWhatItCuts) {
  {
    MetricsLog log(file_, -1);
    EXPECT_EQ(log.lines_cut(), 0);
    for (int step = 1; step <= 3; ++step) log.append(record(step, 1));
  }
  const MetricsLog log(file_, -1);
  EXPECT_EQ(log.lines_cut(), 3);
  EXPECT_EQ(log.resumed_at(), -1);
  EXPECT_EQ(content(file_), "");
}

TEST_F(MetricsLogTest, ZerosOfAPowerFailureAreATornEnd) {
  {
    MetricsLog log(file_, -1);
    for (int step = 1; step <= 3; ++step) log.append(record(step, step));
    log.sync();
  }
  const std::string whole = content(file_);
  const std::string zeros(50, '\0');
  for (const std::string& end : {zeros, zeros + "\n", R"({"step":4,"lo)" + zeros + "\n", zeros + "\n{\"step\":5}\n"}) {
    std::ofstream(file_, std::ios::binary) << whole << end;
    EXPECT_EQ(read_metrics(file_).at("loss").size(), 3u);
    {
      const MetricsLog log(file_, 7);
      EXPECT_EQ(log.resumed_at(), 3);
      EXPECT_GT(log.lines_cut(), 0);
    }
    EXPECT_EQ(content(file_), whole);
  }
}

TEST_F(MetricsLogTest, DamageIsNamedWithItsLine) {
  std::ofstream(file_) << "{\"step\":1}\nrubbish\n{\"step\":3}\n";
  for (const auto& act : {+[](const std::filesystem::path& f) { read_metrics(f); },
                          +[](const std::filesystem::path& f) { MetricsLog(f, 5); }}) {
    try {
      act(file_);
      FAIL() << "rubbish was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_NE(std::string(error.what()).find("line 2"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(read_metrics(directory_.path() / "absent"), Error);
  MetricsLog log(file_, -1);
  EXPECT_THROW(log.append({{"loss", 1.0}}), Error);
}

TEST_F(MetricsLogTest, AFullDiskLeavesWholeLines) {
  const pid_t child = fork();
  if (child == 0) {  // simulates a full disk by a limit of the file size
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 100, .rlim_max = 100};
    setrlimit(RLIMIT_FSIZE, &limit);
    int failures = 0;
    MetricsLog log(file_, -1);
    for (int step = 0; step < 20; ++step) {
      try {
        log.append(record(step, 0.25));
      } catch (const Error&) {
        ++failures;
      }
    }
    _exit(failures > 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "append did not throw";
  const std::string text = content(file_);
  EXPECT_LE(text.size(), 100u);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_GE(read_metrics(file_).at("loss").size(), 3u);
}

TEST_F(MetricsLogTest, LinesWaitForSpace) {
  MetricsLog log(file_, -1);
  log.append(record(0, 0.25));
  {
    const FileSizeLimit full(30);  // fits the first line and a part of the second
    EXPECT_THROW(log.append(record(1, 0.5)), Error);
    EXPECT_THROW(log.append(record(2, 0.75)), Error);
  }
  log.append(record(3, 1.0));
  std::vector<MetricPoint> expected{{0, 0.25}, {1, 0.5}, {2, 0.75}, {3, 1.0}};
  EXPECT_EQ(read_metrics(file_).at("loss"), expected);
  {
    const FileSizeLimit full(static_cast<rlim_t>(content(file_).size()));
    EXPECT_THROW(log.append(record(4, 1.25)), Error);  // the last record of a run
    EXPECT_THROW(log.sync(), Error);
  }
  log.sync();
  expected.push_back({4, 1.25});
  EXPECT_EQ(read_metrics(file_).at("loss"), expected);
}

}  // namespace
}  // namespace lyceum
