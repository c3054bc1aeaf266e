#include "io/run/trace_file.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "core/error.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

nlohmann::json json_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

TraceEvents two_events(int rank) {
  TraceEvents events(rank, "rank \"1\"");
  events.track(4, "computation");
  events.add({.name = "a\\b", .category = "kernel", .track = 4, .begin = 1'234'567, .end = 1'234'570});
  events.add({.name = "send",
              .category = "transfer",
              .track = 5,
              .begin = -5,
              .end = 10,
              .texts = {{"where", "x.cpp:1"}},
              .numbers = {{"bytes", 9'007'199'254'740'993}}});
  events.add_arrow("id", 5, 0, rank == 0);
  return events;
}

TEST(TraceFile, HasTheEventsInMicroseconds) {
  const TemporaryDirectory folder;
  write_trace(folder.path() / "a.json", {{"mesh", "dp \"2\""}}, two_events(3));
  const nlohmann::json trace = json_of(folder.path() / "a.json");
  EXPECT_EQ(trace["otherData"]["mesh"], "dp \"2\"");
  const nlohmann::json& events = trace["traceEvents"];
  ASSERT_EQ(events.size(), 7U);
  EXPECT_EQ(events[0]["args"]["name"], "rank \"1\"");
  EXPECT_EQ(events[2]["tid"], 4);
  EXPECT_EQ(events[4], nlohmann::json::parse(
                           R"({"ph":"X","name":"a\\b","cat":"kernel","pid":3,"tid":4,"ts":1234.567,"dur":0.003})"));
  EXPECT_EQ(events[5]["ts"], -0.005);
  EXPECT_EQ(events[5]["args"], nlohmann::json::parse(R"({"where":"x.cpp:1","bytes":9007199254740993})"));
  EXPECT_EQ(events[6]["ph"], "f");
  EXPECT_EQ(events[6]["bp"], "e");
}

TEST(TraceFile, JoinsTheEventsOfAllRanks) {
  const TemporaryDirectory folder;
  std::vector<std::filesystem::path> files;
  nlohmann::json expected = nlohmann::json::array();
  for (int rank = 0; rank < 3; ++rank) {
    files.push_back(folder.path() / std::to_string(rank));
    write_trace(files.back(), {{"rank", std::to_string(rank)}}, two_events(rank));
    const nlohmann::json of_rank = json_of(files.back());
    for (const nlohmann::json& event : of_rank["traceEvents"]) expected.push_back(event);
  }
  join_traces(files, folder.path() / "all.json");
  const nlohmann::json joined = json_of(folder.path() / "all.json");
  EXPECT_EQ(joined["traceEvents"], expected);
  EXPECT_EQ(joined["otherData"]["rank"], "0");
}

TEST(TraceFile, IncompleteAndMissingFilesAreNotJoined) {
  const TemporaryDirectory folder;
  const std::vector<std::filesystem::path> files{folder.path() / "0", folder.path() / "1"};
  write_trace(files[0], {}, two_events(0));
  EXPECT_THROW(join_traces(files, folder.path() / "all.json"), Error);
  std::ofstream(files[1]) << "{\"otherData\":{},\"traceEvents\":[\n{}";
  EXPECT_THROW(join_traces(files, folder.path() / "all.json"), Error);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "all.json"));
}

TEST(DisjointTracks, HaveNoOverlapAndAreAsFewAsPossible) {
  std::mt19937 random(5);
  std::vector<std::pair<std::int64_t, std::int64_t>> intervals;
  for (int i = 0; i < 300; ++i) {
    const auto begin = static_cast<std::int64_t>(random() % 1000);
    intervals.emplace_back(begin, begin + static_cast<std::int64_t>(random() % 60));
  }
  std::sort(intervals.begin(), intervals.end());
  const std::vector<int> tracks = disjoint_tracks(intervals);
  int most_open = 0;  // the largest number of intervals that are open at a time is the least number of tracks
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    int open = 1;
    for (std::size_t j = 0; j < i; ++j) {
      if (intervals[j].second <= intervals[i].first) continue;
      ++open;
      EXPECT_NE(tracks[i], tracks[j]);
    }
    most_open = std::max(most_open, open);
  }
  EXPECT_EQ(1 + *std::max_element(tracks.begin(), tracks.end()), most_open);
  EXPECT_TRUE(disjoint_tracks({}).empty());
}

}  // namespace
}  // namespace lyceum
