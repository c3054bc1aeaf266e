#include "parallel/comm/turns.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "core/profile.h"

namespace lyceum {
namespace {

class TurnsTest : public testing::Test {
 protected:
  /// Returns a task of `count` exchanges that logs its progress.
  auto task(char name, int count) {
    return [this, name, count] {
      const std::string own(1, name);
      for (int i = 0; i < count; ++i) {
        log += own + std::to_string(i) + " ";
        turns.note_start();
        turns.before_wait();
      }
      log += own + ". ";
    };
  }
  std::string log;
  Turns turns;
};

TEST_F(TurnsTest, TheOtherTaskGoesOnWhereOneWouldWait) {
  turns.run(task('a', 2), task('b', 2));
  EXPECT_EQ(log, "a0 b0 a1 b1 a. b. ");
  log.clear();
  turns.run(task('a', 3), task('b', 1));
  EXPECT_EQ(log, "a0 b0 a1 b. a2 a. ");
  log.clear();
  turns.run(task('a', 1), task('b', 3));
  EXPECT_EQ(log, "a0 b0 a. b1 b2 b. ");
  log.clear();
  turns.run(task('a', 0), task('b', 1));
  EXPECT_EQ(log, "a. b0 b. ");
}

TEST_F(TurnsTest, ATurnEndsOnlyAfterAStart) {
  turns.run(
      [&] {
        turns.before_wait();
        log += "a";
        turns.note_start();
        turns.note_start();
        turns.before_wait();
        log += "a";
        turns.before_wait();
        log += "a";
      },
      [&] {
        log += "b";
        turns.before_wait();
        log += "b";
      });
  EXPECT_EQ(log, "abbaa");
}

TEST_F(TurnsTest, OneTaskAloneNeverStops) {
  task('a', 3)();
  EXPECT_EQ(log, "a0 a1 a2 a. ");
  turns.run(task('a', 1), [] {});
  EXPECT_THROW(turns.run([&] { turns.run([] {}, [] {}); }, [] {}), Error);
}

/// Logs its destruction.
struct Guard {
  std::string& log;
  const char* name;
  ~Guard() { log += name; }
};

TEST_F(TurnsTest, AnErrorOfTheFirstEndsTheSecond) {
  const auto fails = [&] {
    turns.note_start();
    turns.before_wait();
    throw std::runtime_error("first");
  };
  const auto waits = [&] {
    const Guard guard{log, "gone "};
    task('b', 3)();
  };
  try {
    turns.run(fails, waits);
    ADD_FAILURE() << "came back";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(log, "b0 gone ");
  // If the first task throws before the second has started, the second does not start.
  log.clear();
  EXPECT_THROW(turns.run([] { throw std::runtime_error("at once"); }, waits), std::runtime_error);
  EXPECT_EQ(log, "");
  turns.run(task('a', 1), task('b', 1));
  EXPECT_EQ(log, "a0 b0 a. b. ") << "usable again";
}

TEST_F(TurnsTest, AnErrorOfTheSecondEndsTheFirst) {
  const auto waits = [&] {
    const Guard guard{log, "gone "};
    task('a', 3)();
  };
  for (int turn = 0; turn < 2; ++turn) {
    log.clear();
    const auto fails = [&] {
      task('b', turn)();
      throw std::runtime_error("second");
    };
    EXPECT_THROW(turns.run(waits, fails), std::runtime_error);
    EXPECT_EQ(log, turn == 0 ? "a0 b. gone " : "a0 b0 a1 b. gone ");
  }
  EXPECT_THROW(turns.run([] {}, [] { throw std::runtime_error("second"); }), std::runtime_error);
}

/// A scope of the profile belongs to the running task and is nested in the scopes that were open before run().
TEST_F(TurnsTest, EachTaskHasScopesOfItsOwn) {
  Profile profile;
  const auto scoped = [&](const char* name, int count) {
    return [&, name, count] {
      const ProfileScope outer(&profile, name);
      for (int i = 0; i < count; ++i) {
        const ProfileScope inner(&profile, "exchange");
        turns.note_start();
        turns.before_wait();
      }
    };
  };
  {
    const ProfileScope step(&profile, "step");
    turns.run(scoped("a", 3), scoped("b", 1), &profile);
    turns.run(scoped("a", 1), scoped("b", 2), &profile);
    const ProfileScope after(&profile, "after");
  }
  std::map<std::string, std::int64_t> calls;
  for (const auto& [path, entry] : profile.entries()) calls[path] = entry.calls;
  EXPECT_EQ(calls, (std::map<std::string, std::int64_t>{{"step", 1},
                                                        {"step/a", 2},
                                                        {"step/a/exchange", 4},
                                                        {"step/after", 1},
                                                        {"step/b", 2},
                                                        {"step/b/exchange", 3}}));
  EXPECT_TRUE(profile.scopes().empty());
}

}  // namespace
}  // namespace lyceum
