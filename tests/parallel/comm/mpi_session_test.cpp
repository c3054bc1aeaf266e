#include "parallel/comm/mpi_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "parallel/comm/deadline.h"

namespace lyceum {
namespace {

/// Tests of a process that was not started by an MPI launcher.
class MpiSessionTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"}) unsetenv(name);
  }
  void TearDown() override { unsetenv("SLURM_STEP_NUM_TASKS"); }
};

TEST_F(MpiSessionTest, StartedByHandIsAJobOfOneRank) {
  const MpiSession session;
  EXPECT_EQ(session.rank(), 0);
  EXPECT_EQ(session.size(), 1);
  EXPECT_EQ(session.local_rank(), 0);
  EXPECT_EQ(session.local_size(), 1);
  EXPECT_FALSE(session.host().empty());
  const ProcessGroup world = session.world(1);
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.name(), "world");
  EXPECT_EQ(world.broadcast("text", 0), "text");
  EXPECT_EQ(world.all_gather("text"), std::vector<std::string>{"text"});
  const ProcessGroup part = world.split(3, 0, "part");
  EXPECT_EQ(part.size(), 1);
  EXPECT_EQ(part.name(), "part");
  part.barrier();
}

TEST_F(MpiSessionTest, SeveralTasksWithoutMpiAreRefused) {
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  try {
    const MpiSession session;
    ADD_FAILURE() << "four tasks would each train alone";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("srun started 4 tasks without MPI"));
  }
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_EQ(MpiSession().size(), 1);
}

TEST_F(MpiSessionTest, AbortEndsWithTheExitCode) {
  EXPECT_EXIT(MpiSession().abort(ExitCode::bad_input), testing::ExitedWithCode(3), "");
}

/// Returns a failure that is reported by process `reporter`.
MpiSession::Failure reported_by(int reporter) {
  return {.code = ExitCode::failed, .line = "why", .reported_elsewhere = true, .reporter = reporter};
}

TEST_F(MpiSessionTest, WithoutTheProcessThatReportsThisOneDoes) {
  const auto report = [] {
    const pid_t gone = fork();
    if (gone == 0) _exit(0);
    waitpid(gone, nullptr, 0);
    MpiSession().report(reported_by(gone));
  };
  EXPECT_EXIT(report(), testing::ExitedWithCode(4), "^why\n$");
}

TEST_F(MpiSessionTest, EndedByTheLauncherItReportsNothing) {
  const auto report = [] {
    MpiSession::Failure failure = reported_by(getpid());
    failure.ended = [] { return true; };
    MpiSession().report(failure);
  };
  EXPECT_EXIT(report(), testing::ExitedWithCode(4), testing::IsEmpty());
}

TEST(Deadline, EndsTheProcessUnlessItGoesFirst) {
  { const Deadline early(60, "late"); }
  const auto wait = [] {
    const Deadline passes(0.01, "too late");
    std::this_thread::sleep_for(std::chrono::minutes(1));
  };
  EXPECT_EXIT(wait(), testing::ExitedWithCode(4), "^too late\n$");
}

TEST_F(MpiSessionTest, AllRanksNeedMpi) { EXPECT_THROW(ProcessGroup::world(1), Error); }

}  // namespace
}  // namespace lyceum
