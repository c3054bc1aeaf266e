#include "train/run/start_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>

#include "support/tiny_run.h"
#include "train/setup/machine.h"

namespace lyceum {
namespace {

RankPlace place(const std::string& host, int local_rank) {
  return {.host = host,
          .cores = "0-3",
          .local_rank = local_rank,
          .threads = 4,
          .memory = 8e9,
          .device = "cpu",
          .processor = "EPYC"};
}

std::unique_ptr<RunSetup> setup_with(std::vector<RankPlace> places) {
  auto setup = make_setup(ProcessGroup::self(), {});
  setup->places = std::move(places);
  return setup;
}

TEST(StartTable, HasARowARank) {
  unsetenv("SLURM_JOB_ID");
  EXPECT_THAT(start_lines(*setup_with({place("n1", 0), place("n1", 1), place("n2", 0)})),
              testing::ElementsAre("rank  host  local  cores  threads   memory  device",
                                   "   0  n1        0  0-3          4  8.00 GB  cpu",
                                   "   1  n1        1  0-3          4  8.00 GB  cpu",
                                   "   2  n2        0  0-3          4  8.00 GB  cpu"));
}

TEST(StartTable, FoldsManyRanksToARowAHost) {
  std::vector<RankPlace> places;
  for (int rank = 0; rank < 64; ++rank) places.push_back(place(rank < 40 ? "n1" : "n2", rank < 40 ? rank : rank - 40));
  EXPECT_THAT(start_lines(*setup_with(places)),
              testing::ElementsAre(" rank  host  local  cores  threads   memory  device",
                                   " 0-39  n1     0-39  0-3          4  8.00 GB  cpu",
                                   "40-63  n2     0-23  0-3          4  8.00 GB  cpu"));
}

TEST(Machine, CountsTheCoresThatThisProcessMayUse) {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  EXPECT_EQ(own_cores().count, CPU_COUNT(&cores));
  const cpu_set_t all = cores;
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &all)) --last;
  CPU_ZERO(&cores);
  CPU_SET(last, &cores);
  ASSERT_EQ(sched_setaffinity(0, sizeof cores, &cores), 0);
  EXPECT_EQ(own_cores().count, 1);
  EXPECT_EQ(own_cores().text, std::to_string(last));
  sched_setaffinity(0, sizeof all, &all);
}

TEST(Machine, SlurmsGrantLimitsMemory) {
  const double whole = job_memory();
  EXPECT_GT(whole, 1e8);
  setenv("SLURM_MEM_PER_NODE", "64", 1);
  EXPECT_DOUBLE_EQ(job_memory(), 64.0 * 1024 * 1024);
  setenv("SLURM_MEM_PER_NODE", "0", 1);  // all of the node
  EXPECT_DOUBLE_EQ(job_memory(), whole);
  unsetenv("SLURM_MEM_PER_NODE");
  setenv("SLURM_MEM_PER_CPU", "16", 1);
  setenv("SLURM_CPUS_ON_NODE", "2", 1);
  EXPECT_DOUBLE_EQ(job_memory(), 32.0 * 1024 * 1024);
  unsetenv("SLURM_MEM_PER_CPU");
  unsetenv("SLURM_CPUS_ON_NODE");
}

}  // namespace
}  // namespace lyceum
