#include "core/fibre.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"

namespace lyceum {
namespace {

TEST(Fibre, RunsFromResumeToPause) {
  std::string log;
  std::optional<Fibre> fibre;
  fibre.emplace([&] {
    const std::string own = "kept on its stack";
    log += "a";
    fibre->pause();
    log += "b" + own;
    fibre->pause();
    log += "c";
  });
  EXPECT_FALSE(fibre->started());
  for (const char* after : {"a|", "a|bkept on its stack|", "a|bkept on its stack|c|"}) {
    fibre->resume();
    log += "|";
    EXPECT_EQ(log, after);
    EXPECT_TRUE(fibre->started());
  }
  EXPECT_TRUE(fibre->ended());
  EXPECT_THROW(fibre->resume(), Error);
}

TEST(Fibre, ThatNobodyResumesDoesNothing) {
  bool ran = false;
  {
    const Fibre fibre([&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

int sum_down(int n) {
  volatile char room[4096] = {};
  room[n % 4096] = 1;
  return n == 0 ? 0 : n + sum_down(n - 1) + room[(n + 1) % 4096];
}

TEST(Fibre, HasAStackForDeepCalls) {
  int sum = 0;
  Fibre fibre([&] { sum = sum_down(500); });
  fibre.resume();
  EXPECT_EQ(sum, 500 * 501 / 2);
}

/// Exception handlers find their frames on both stacks, however often the stacks alternate.
TEST(Fibre, ExceptionsStayOnTheirStack) {
  std::string caught;
  std::optional<Fibre> fibre;
  const auto thrower = [&](const std::string& what) {
    const std::vector<int> on_the_way(100, 1);
    if (std::accumulate(on_the_way.begin(), on_the_way.end(), 0) == 100) throw std::runtime_error(what);
  };
  fibre.emplace([&] {
    for (int i = 0; i < 2; ++i) {
      try {
        fibre->pause();
        thrower("inside ");
      } catch (const std::runtime_error& error) {
        caught += error.what();
      }
      fibre->pause();
    }
  });
  while (!fibre->ended()) {
    fibre->resume();
    try {
      thrower("outside ");
    } catch (const std::runtime_error& error) {
      caught += error.what();
    }
  }
  EXPECT_EQ(caught, "outside inside outside outside inside outside outside ");
}

TEST(Fibre, ManyLiveAtATime) {
  std::vector<int> done;
  std::vector<std::unique_ptr<Fibre>> fibres;
  for (int i = 0; i < 20; ++i) {
    fibres.push_back(std::make_unique<Fibre>([&, i] {
      fibres[static_cast<std::size_t>(i)]->pause();
      done.push_back(i);
    }));
  }
  for (const auto& fibre : fibres) fibre->resume();
  EXPECT_TRUE(done.empty());
  for (const auto& fibre : fibres) fibre->resume();
  std::vector<int> all(20);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(done, all);
}

}  // namespace
}  // namespace lyceum
