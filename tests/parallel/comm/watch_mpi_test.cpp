// Diagnosis of waits that time out because a rank is missing or calls another operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>

#include "parallel/comm/ledger.h"
#include "parallel/comm/process_group.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class WatchTest : public testing::Test {
 protected:
  void SetUp() override {
    if (size < 2) GTEST_SKIP() << "needs two ranks";
  }
  /// Calls `call` on all ranks, with a timeout of `seconds` for groups of the world of `hasty`. Returns the text of
  /// each rank's Error; empty for a rank without one.
  std::vector<std::string> errors(const ProcessGroup& hasty, const std::function<void()>& call,
                                  double seconds = short_time) const {
    std::string reports;
    world.barrier();  // all ranks make the call at about the same time
    hasty.set_timeout(seconds);
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::failed);
      reports = error.what();
    }
    return world.all_gather(reports);
  }
  /// Returns the number of errors that contain `part`.
  static std::ptrdiff_t count_with(const std::vector<std::string>& errors, const std::string& part) {
    return std::ranges::count_if(errors, [&](const auto& error) { return error.find(part) != error.npos; });
  }

  /// A timeout, in seconds, in which ranks can enter a call together even on a busy machine.
  static constexpr double short_time = 2;

  const ProcessGroup world = test_world();
  const int rank = world.rank(), size = world.size();
  const int last = size - 1;
  std::vector<float> values = std::vector<float>(256);
};

TEST_F(WatchTest, OneRankTellsWhoStaysAway) {
  const ProcessGroup hasty = test_world();
  hasty.barrier();
  const auto reports = errors(hasty, [&] {
    if (rank != last) hasty.all_reduce(values);
  });
  const std::string culprit = "rank " + std::to_string(last) + " on ";
  EXPECT_EQ(count_with(reports, culprit), 1);
  EXPECT_EQ(count_with(reports, "waited 2 s"), last);
  EXPECT_EQ(count_with(reports, " has not entered all_reduce #"), 1);
  EXPECT_EQ(count_with(reports, "its last operation: barrier #"), 1);
  EXPECT_TRUE(reports.back().empty());
}

TEST_F(WatchTest, ARankThatWaitsForAnotherIsNotBlamed) {
  // Ranks 1 … size − 2 wait in a group for the last rank, and rank 0 waits for rank 1: the last rank is the cause.
  const ProcessGroup hasty = test_world();
  const ProcessGroup others = hasty.split(rank == 0 ? 0 : 1, rank, "others");
  if (size < 4) return;
  const auto reports = errors(hasty, [&] {
    if (rank == 0) hasty.receive_async(Tensor::zeros(CpuStream(1), DType::f32, {1}), 1).wait();
    if (rank > 0 && rank != last) others.barrier();
  });
  EXPECT_EQ(count_with(reports, "rank " + std::to_string(last) + " on "), 1);
  EXPECT_EQ(count_with(reports, "has not entered barrier #0 of 0 B on group others (watch_mpi_test.cpp:"), 1);
}

TEST_F(WatchTest, DifferentCallsAreReportedWithBothCallSites) {
  const ProcessGroup hasty = test_world();
  const ProcessGroup group = hasty.split(0, rank, "data");
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(size)), own{rank};
  const auto place = [](unsigned line) { return " on group data (watch_mpi_test.cpp:" + std::to_string(line) + ")"; };
  const unsigned here = std::source_location::current().line();
  const auto reports = errors(hasty, [&] {
    if (rank == last) group.all_gather(own, numbers);
    if (rank != last) group.all_reduce(values);
  });
  const std::string other = std::to_string(last);
  EXPECT_EQ(count_with(reports, "ranks 0 and " + other + " diverge: rank 0 called all_reduce #0 of 1024 B" +
                                    place(here + 3) + ", rank " + other + " called all_gather #0 of " +
                                    std::to_string(8 * size) + " B" + place(here + 2)),
            1)
      << testing::PrintToString(reports);
}

TEST_F(WatchTest, OtherMachinesAreAsked) {
  // Each rank acts as a separate machine. All but the last rank wait in a group for the last one.
  const ProcessGroup hasty = ProcessGroup::world(patience, "machine " + std::to_string(rank));
  const ProcessGroup group = hasty.split(0, rank, "data");
  const auto reports = errors(hasty, [&] {
    if (rank != last) group.all_reduce(values);
  });
  EXPECT_EQ(count_with(reports, "1 of the " + std::to_string(size) + " ranks of all_reduce #0 of 1024 B on group data"),
            1)
      << testing::PrintToString(reports);
  EXPECT_EQ(count_with(reports, "did not answer: no response from rank " + std::to_string(last)), 1);
}

TEST_F(WatchTest, ARankOfAnotherMachineThatWaitsForItsNeighbourTells) {
  // Two machines: even and odd ranks. The odd ranks wait for the last rank, the even ones for the odd ones.
  if (size < 4) return;
  const bool odd = rank % 2;
  const ProcessGroup hasty = ProcessGroup::world(patience, odd ? "odd" : "even");
  const ProcessGroup odds = hasty.split(odd, rank, "odds"), group = hasty.split(0, rank, "data");
  const auto call = [&] {
    if (odd && rank != last) odds.barrier();
    if (!odd) group.all_reduce(values);
  };
  const auto reports = errors(hasty, call, odd ? short_time : 2 * short_time);
  EXPECT_EQ(count_with(reports, "rank " + std::to_string(last) + " on "), 1) << testing::PrintToString(reports);
  EXPECT_EQ(count_with(reports, "has not entered barrier #0 of 0 B on group odds"), 1);
}

TEST_F(WatchTest, AStoppedProcessIsSeen) {
  const ProcessGroup hasty = test_world();
  const std::vector<std::string> processes = world.all_gather(std::to_string(getpid()));
  const int victim = std::stoi(processes.back());
  const auto wake = [&] { kill(victim, SIGCONT); };
  std::string reports;
  if (rank == 0) {
    hasty.set_timeout(short_time);
    kill(victim, SIGSTOP);
    try {
      hasty.all_reduce(values);
    } catch (const Error& error) {
      reports = error.what();
    }
    wake();
    const std::string culprit = "rank " + std::to_string(last) + " on ";
    EXPECT_THAT(reports, AllOf(HasSubstr(culprit), HasSubstr("(process " + processes.back() + " is stopped)")));
  }
  world.barrier();
}

}  // namespace
}  // namespace lyceum
