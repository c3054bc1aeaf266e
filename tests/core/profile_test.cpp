#include "core/profile.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

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

TEST(ProfileScope, DoesNothingWithoutAProfile) { const ProfileScope scope(nullptr, "nowhere"); }

}  // namespace
}  // namespace lyceum
