#include "core/profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace lyceum {
namespace {

/// A device clock on which successive stamps are 1, 2, 3, … seconds apart.
class CountingClock : public ProfileClock {
 public:
  std::size_t stamp() override {
    times_.push_back(times_.empty() ? 100 : times_.back() + static_cast<double>(times_.size()));
    return times_.size() - 1;
  }
  std::vector<double> times() override { return std::exchange(times_, {}); }
  void open(const char* name) override { scopes += std::string("<") + name; }
  void close() override { scopes += '>'; }
  std::string scopes;

 private:
  std::vector<double> times_;
};

TEST(Profile, ChargesEverySecondOnce) {
  Profile profile;
  {
    const ProfileScope outer(&profile, "outer");
    for (int i = 0; i < 2; ++i) {
      const ProfileScope inner(&profile, "inner");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  const auto& entries = profile.entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries.at("outer").calls, 1);
  EXPECT_EQ(entries.at("outer/inner").calls, 2);
  EXPECT_GE(entries.at("outer/inner").seconds, 0.004);
  EXPECT_LT(entries.at("outer").seconds, entries.at("outer/inner").seconds);
  profile.clear();
  EXPECT_TRUE(profile.entries().empty());
}

TEST(Profile, TakesTheTimeFromADevicesClock) {
  Profile profile;
  const auto clock = std::make_shared<CountingClock>();
  profile.set_clock(clock);
  for (int step = 0; step < 2; ++step) {
    {
      const ProfileScope outer(&profile, "a");  // stamp 0
      {
        const ProfileScope inner(&profile, "b");  // 1 s later
      }                                           // 2 s later
      const ProfileScope inner(&profile, "c");    // 3 s later
    }                                             // c ends 4 s later, and a 5 s after c
    const auto& entries = profile.entries();
    EXPECT_EQ(entries.at("a").seconds, (step + 1) * (1 + 3 + 5));
    EXPECT_EQ(entries.at("a/b").seconds, (step + 1) * 2);
    EXPECT_EQ(entries.at("a/c").seconds, (step + 1) * 4);
  }
  EXPECT_EQ(clock->scopes, "<a<b><c>><a<b><c>>");
  profile.set_clock(nullptr);
  { const ProfileScope host(&profile, "host"); }
  EXPECT_GE(profile.entries().at("host").seconds, 0);
  EXPECT_EQ(clock->scopes.find("host"), std::string::npos);
}

TEST(Profile, ChangesItsScopes) {
  Profile profile;
  const auto clock = std::make_shared<CountingClock>();
  profile.set_clock(clock);
  {
    const ProfileScope outer(&profile, "a");  // stamp 0
    std::vector<std::string> other = profile.scopes();
    const ProfileScope inner(&profile, "b");      // 1 s later
    profile.change_scopes(other);                 // 2 s later
    { const ProfileScope inner(&profile, "c"); }  // 3 s, then 4 s later
    profile.change_scopes(other);                 // 5 s later
  }                                               // b ends 6 s later, and a 7 s after b
  const auto& entries = profile.entries();
  EXPECT_EQ(entries.at("a").seconds, 1 + 3 + 5 + 7);
  EXPECT_EQ(entries.at("a/b").seconds, 2 + 6);
  EXPECT_EQ(entries.at("a/c").seconds, 4);
  EXPECT_EQ(entries.at("a/b").calls, 1);
  EXPECT_EQ(clock->scopes, "<a<b>><a<c>><a<b>>");
}

TEST(Profile, RecordsSpansOnTheHostsClock) {
  Profile profile;
  { const ProfileScope before(&profile, "before"); }
  profile.record_spans(true);
  const auto begin = Clock::now();
  {
    const ProfileScope outer(&profile, "outer");
    { const ProfileScope inner(&profile, "inner forward"); }
    const ProfileScope inner(&profile, "last");
  }
  const auto end = Clock::now();
  profile.record_spans(false);
  { const ProfileScope after(&profile, "after"); }
  const std::vector<ProfileSpan> spans = profile.take_spans();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].name, "inner forward");
  EXPECT_EQ(spans[1].name, "last");
  EXPECT_EQ(spans[2].name, "outer");
  const auto seconds = [](Clock::time_point time) {
    return std::chrono::duration<double>(time.time_since_epoch()).count();
  };
  EXPECT_LE(seconds(begin), spans[2].begin);
  EXPECT_LE(spans[2].begin, spans[0].begin);
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_LE(spans[0].end, spans[1].begin);
  EXPECT_LE(spans[1].end, spans[2].end);
  EXPECT_LE(spans[2].end, seconds(end));
  EXPECT_TRUE(profile.take_spans().empty());
}

TEST(Profile, RecordsSpansOnADevicesClock) {
  Profile profile;
  profile.set_clock(std::make_shared<CountingClock>());
  profile.record_spans(true);
  for (int step = 0; step < 2; ++step) {
    const double before = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    {
      const ProfileScope outer(&profile, "a");      // stamp 0, at 100 s
      { const ProfileScope inner(&profile, "b"); }  // from 101 to 103 s
    }                                               // until 106 s
    const double after = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    const std::vector<ProfileSpan> spans = profile.take_spans();
    ASSERT_EQ(spans.size(), 2u);
    EXPECT_NEAR(spans[0].begin - spans[1].begin, 1, 1e-6);
    EXPECT_NEAR(spans[0].end - spans[0].begin, 2, 1e-6);
    EXPECT_NEAR(spans[1].end - spans[1].begin, 6, 1e-6);
    // The clock's first stamp is 100 s: the host's time when the outermost scope was opened.
    EXPECT_GE(spans[1].begin, before + 100 - 1e-6);
    EXPECT_LE(spans[1].begin, after + 100 + 1e-6);
  }
}

TEST(Profile, ATaskThatPausesEndsItsSpans) {
  Profile profile;
  profile.set_clock(std::make_shared<CountingClock>());
  profile.record_spans(true);
  {
    const ProfileScope outer(&profile, "a");  // stamp 0
    std::vector<std::string> other = profile.scopes();
    const ProfileScope inner(&profile, "b");      // from 1 s
    profile.change_scopes(other);                 // to 3 s
    { const ProfileScope inner(&profile, "c"); }  // from 6 s to 10 s
    profile.change_scopes(other);                 // b again from 15 s
  }                                               // to 21 s; a until 28 s
  const std::vector<ProfileSpan> spans = profile.take_spans();
  ASSERT_EQ(spans.size(), 4u);
  const double zero = spans[3].begin;
  const std::vector<std::tuple<std::string, double, double>> expected{
      {"b", 1, 3}, {"c", 6, 10}, {"b", 15, 21}, {"a", 0, 28}};
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].name, std::get<0>(expected[i]));
    EXPECT_NEAR(spans[i].begin - zero, std::get<1>(expected[i]), 1e-6);
    EXPECT_NEAR(spans[i].end - zero, std::get<2>(expected[i]), 1e-6);
  }
}

TEST(ProfileScope, DoesNothingWithoutAProfile) { const ProfileScope scope(nullptr, "nowhere"); }

}  // namespace
}  // namespace lyceum
