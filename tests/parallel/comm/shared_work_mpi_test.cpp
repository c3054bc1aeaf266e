// Ranks that wait for the work of others for longer than the timeout.
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "parallel/comm/shared_work.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

constexpr double timeout = 2;  // much longer than a message takes, even on a busy machine

void work(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(SharedWork, MayTakeLongerThanTheTimeout) {
  const ProcessGroup world = test_world(), hasty = hasty_world(timeout);
  const std::atomic<std::int64_t> progress = 0;
  SharedWork shared(hasty, progress);
  bool done = false;
  if (hasty.rank() == 0) {
    shared.run([&] {
      work(3 * timeout);
      done = true;
    });
  } else if (hasty.rank() == 1) {
    for (int i = 0; i < 20; ++i) shared.run([] { work(timeout / 10); });
  }
  EXPECT_NO_THROW(shared.finish());
  EXPECT_EQ(done, hasty.rank() == 0);
  EXPECT_NO_THROW(hasty.barrier());
  world.barrier();
}

TEST(SharedWork, OfRankZeroOthersWaitForIt) {
  const ProcessGroup world = test_world(), hasty = ProcessGroup::world(timeout);
  bool done = false;
  work_on_files_of_rank_zero(hasty, [&] {
    work(1.5 * timeout);
    done = true;
  });
  EXPECT_EQ(done, hasty.rank() == 0);
  EXPECT_NO_THROW(hasty.barrier());
  world.barrier();
}

TEST(SharedWork, ErrorsComeOut) {
  const ProcessGroup world = test_world();
  const std::atomic<std::int64_t> progress = 0;
  SharedWork shared(world, progress);
  EXPECT_THROW(shared.run([] { throw std::runtime_error("no"); }), std::runtime_error);
  shared.finish();
}

TEST(SharedWork, ARankThatIsLostIsFoundByThoseThatWorkAndThoseThatWait) {
  const ProcessGroup world = test_world(), hasty = hasty_world(timeout);
  if (world.size() < 2) GTEST_SKIP() << "needs two ranks";
  const int last = world.size() - 1;
  if (world.rank() != last) {
    const std::atomic<std::int64_t> progress = 0;
    SharedWork shared(hasty, progress);
    if (world.rank() == 0) {
      bool called = false;
      EXPECT_NO_THROW(shared.run([] { work(2 * timeout); }));
      EXPECT_THROW(shared.run([&] { called = true; }), Error);  // the error is thrown before the action is called
      EXPECT_FALSE(called);
    }
    EXPECT_THROW(shared.finish(), Error);
  }
  world.barrier();
}

}  // namespace
}  // namespace lyceum
