#include "core/memory_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/control_groups.h"
#include "core/resident_memory.h"
#include "support/fake_system.h"

namespace lyceum {
namespace {

using test::FakeSystem;
constexpr double margin = 16 * 1024 * 1024;  // bytes that MemoryRoom adds for each process
constexpr double kept_files = 32 * 1024 * 1024;

TEST(MemoryRoom, IsThatOfTheTightestGroup) {
  const FakeSystem system("4:memory:/slurm/job\n0::/\n");
  system.group_of_version_1("/slurm", 2000, 1500, 0);
  system.group_of_version_1("/slurm/job", 1000, 900, 0);
  const MemoryRoom room(1, system.root());
  MemoryRoom::Verdict verdict = room.check(0, 0);
  EXPECT_DOUBLE_EQ(verdict.room, 100e6);
  EXPECT_DOUBLE_EQ(verdict.limit, 1000e6);
  EXPECT_DOUBLE_EQ(verdict.needed, margin);
  EXPECT_THAT(verdict.text(),
              testing::MatchesRegex(
                  "the control group .*/memory/slurm/job has 100 MB left of 1000 MB, and 17 MB are needed.*"));
  system.group_of_version_1("/slurm", 2000, 1950, 0);  // other jobs grow
  verdict = room.check(0, 0);
  EXPECT_DOUBLE_EQ(verdict.room, 50e6);
  EXPECT_THAT(verdict.text(), testing::HasSubstr("/memory/slurm has 50 MB left of 2000 MB, "));
}

TEST(MemoryRoom, KnowsBothVersions) {
  const FakeSystem system("0::/user/run\n");
  system.group_of_version_2("/user", 900, 100, 0);
  system.group_of_version_2("/user/run", 1000, 900, 600);
  const MemoryRoom::Verdict verdict = MemoryRoom(1, system.root()).check(0, 0);
  EXPECT_DOUBLE_EQ(verdict.room, 700e6 - kept_files) << "files that the kernel can drop count, but for some";
  EXPECT_THAT(verdict.text(), testing::HasSubstr("/user/run"));
  system.write("sys/fs/cgroup/user/run/memory.swap.current", "0");
  system.write("sys/fs/cgroup/user/run/memory.swap.max", "90000000");
  EXPECT_DOUBLE_EQ(MemoryRoom(1, system.root()).check(0, 0).room, 700e6 - kept_files) << "no swap is free";
  system.write("proc/meminfo", "MemTotal: 64000000 kB\nMemAvailable: 50000000 kB\nSwapFree: 1000000 kB\n");
  EXPECT_DOUBLE_EQ(MemoryRoom(1, system.root()).check(0, 0).room, 700e6 + 90e6 - kept_files);
}

TEST(MemoryRoom, WithoutLimitsIsThatOfTheMachine) {
  const FakeSystem system("0::/\n4:memory:/job\n");
  system.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712");  // none
  system.write("sys/fs/cgroup/memory.max", "max");
  const MemoryRoom::Verdict verdict = MemoryRoom(1, system.root()).check(0, 0);
  EXPECT_DOUBLE_EQ(verdict.room, 50000000 * 1024.0);
  EXPECT_THAT(verdict.text(), testing::StartsWith("this machine has "));
  const MemoryRoom unknown(1, system.root() / "absent");
  EXPECT_TRUE(unknown.check(std::size_t{1} << 50, 0).fits()) << "a system without these files";
}

/// Memory that was taken may not have been written to yet, and every rank of a machine is left a reserve.
TEST(MemoryRoom, CountsTheReservesAndWhatIsNotWrittenYet) {
  const FakeSystem system("4:memory:/job\n");
  system.group_of_version_1("/job", 1000, 600, 0);
  const MemoryRoom room(4, system.root());
  EXPECT_DOUBLE_EQ(room.check(20000000, 0).needed, 20e6 + 4 * margin);
  EXPECT_TRUE(room.check(330000000, 0).fits());
  EXPECT_FALSE(room.check(335000000, 0).fits());
  EXPECT_FALSE(room.check(300000000, 40000000).fits()) << "40 MB are held, but the process has not grown";
  system.resident(10000 + 40000);
  EXPECT_TRUE(room.check(300000000, 40000000).fits()) << "they are among the 600 MB in use";
  system.resident(10000 + 10000, 30000);
  EXPECT_TRUE(room.check(300000000, 40000000).fits()) << "30 MB of them are in swap";
}

TEST(MemoryRoom, DoesNotGuessWhatIsWritten) {
  const FakeSystem system("4:memory:/job\n");
  system.group_of_version_1("/job", 1000, 600, 0);
  system.write("proc/self/status", "Name:\tlyceum\nVmRSS:\t 10000 kB\n");  // as of an older kernel
  EXPECT_DOUBLE_EQ(MemoryRoom(1, system.root()).check(20000000, 300000000).needed, 20e6 + margin);
}

TEST(MemoryRoom, HasWhatTheKernelCanDropOfItsOwn) {
  const FakeSystem system("0::/run\n");
  system.group_of_version_2("/run", 1000, 900, 0);
  system.write("sys/fs/cgroup/run/memory.stat", "anon 1\nslab_reclaimable 500000000\n");
  EXPECT_DOUBLE_EQ(MemoryRoom(1, system.root()).check(0, 0).room, 600e6 - kept_files);
}

TEST(ControlGroups, AreThoseAboveTheProcess) {
  const FakeSystem system("9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/c\n");
  std::vector<std::string> folders;
  for (const auto& folder : control_groups("memory", system.root())) {
    folders.push_back(folder.lexically_relative(system.root() / "sys/fs/cgroup").string());
  }
  EXPECT_THAT(folders, testing::ElementsAre("memory", "memory/a", "memory/a/b", ".", "c"));
}

TEST(ResidentMemory, IsThePeakOfThisProcess) {
  const std::int64_t before = peak_resident_memory();
  EXPECT_GT(before, 1000000);
  const std::vector<char> memory(std::size_t{64} << 20, 1);
  EXPECT_GE(peak_resident_memory(), before);
  EXPECT_GE(peak_resident_memory(), std::ssize(memory));
  EXPECT_EQ(peak_resident_memory("/absent"), 0);
}

}  // namespace
}  // namespace lyceum
