#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <sstream>

#include "config/binding.h"
#include "support/shared_directory.h"
#include "support/tiny_run.h"
#include "train/run/trainer.h"

namespace lyceum {
namespace {

using testing::Contains;
using testing::ElementsAre;

/// Trains 9 steps and returns the checkpoints of the run, newest first. Rank 0's clock advances by three minutes from
/// one reading to the next.
std::vector<std::string> checkpoints_of(const CheckpointConfig& checkpoint) {
  const ProcessGroup world = test_world();
  const SharedDirectory directory(world);
  Config config = tiny_config();
  std::optional<TinyData> data;
  if (world.rank() == 0) data.emplace(config);
  config.data.train = world.broadcast(data ? data->prefix() : "", 0);
  config.run.dir = (directory.path() / "run").string();
  config.run.steps = 9;
  config.run.device = DeviceKind::cpu;
  config.batch.global = 16;
  config.checkpoint = checkpoint;
  resolve(config, world.size());
  const auto setup = make_setup(world, {});
  setup->resources.resize(static_cast<std::size_t>(world.size()));
  Clock::time_point time{};
  const auto now = [&] {  // the clocks of other ranks run fast, but must not be used
    return time += world.rank() == 0 ? std::chrono::minutes(3) : std::chrono::hours(1000);
  };
  std::ostringstream out;
  Trainer(config, to_ini(config), *setup, out, {.now = now}).run();
  world.barrier();
  std::vector<std::string> names = list_checkpoints(checkpoint_root(config.run));
  world.barrier();
  return names;
}

/// Rank 0's clock is read when a run begins, before its first step, after each step, and when a checkpoint is saved.
TEST(TimedSaves, AreMadeByAllRanksAtTheStepThatRank0Says) {
  EXPECT_THAT(checkpoints_of({.minutes = 10, .keep = 100}),
              ElementsAre("step-00000009", "step-00000007", "step-00000003"));
  EXPECT_THAT(checkpoints_of({.minutes = 0, .keep = 100}), ElementsAre("step-00000009"));
  EXPECT_THAT(checkpoints_of({.minutes = 10, .keep = 100, .background = true}), Contains("step-00000003"));
}

TEST(TimedSaves, AreCountedFromTheLastCheckpointOfAnyKind) {
  EXPECT_THAT(checkpoints_of({.every = 3, .minutes = 10, .keep = 100}),
              ElementsAre("step-00000009", "step-00000006", "step-00000003"));
  EXPECT_THAT(checkpoints_of({.every = 6, .minutes = 10, .keep = 100}),
              ElementsAre("step-00000009", "step-00000006", "step-00000003"));
}

TEST(TimedSaves, GoWhenNewerCheckpointsExist) {
  EXPECT_THAT(checkpoints_of({.minutes = 10, .keep = 0}), ElementsAre("step-00000009"));
  EXPECT_THAT(checkpoints_of({.every = 6, .minutes = 10, .keep = 0}), ElementsAre("step-00000009", "step-00000006"));
  EXPECT_THAT(checkpoints_of({.minutes = 10, .keep = 2}), ElementsAre("step-00000009", "step-00000007"));
}

}  // namespace
}  // namespace lyceum
