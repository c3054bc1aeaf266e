#include "train/setup/machine.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <string>

namespace lyceum {
namespace {

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

TEST(Machine, LimitsMemoryToWhatSlurmGrants) {
  const double whole = job_memory();
  EXPECT_GT(whole, 1e8);
  setenv("SLURM_MEM_PER_NODE", "64", 1);
  EXPECT_DOUBLE_EQ(job_memory(), 64.0 * 1024 * 1024);
  setenv("SLURM_MEM_PER_NODE", "0", 1);  // the whole memory of the node
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
