#include "io/run/batch_job.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace lyceum {
namespace {

/// Returns the batch job in an environment with these variables.
std::optional<BatchJob> job_with(const std::map<std::string, std::string>& variables) {
  for (const char* name : {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_NAME",
                           "SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST", "SLURM_RESTART_COUNT"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  const auto job = batch_job();
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return job;
}

TEST(BatchJob, NoneOutsideSlurm) { EXPECT_FALSE(job_with({})); }

TEST(BatchJob, SaysWhatIsKnown) {
  const auto bare = job_with({{"SLURM_JOB_ID", "7"}});
  ASSERT_TRUE(bare);
  EXPECT_EQ(text_of(*bare), "Slurm job 7");
  const auto full = job_with({{"SLURM_JOB_ID", "4711"},
                              {"SLURM_JOB_NAME", "train"},
                              {"SLURM_JOB_PARTITION", "low"},
                              {"SLURM_JOB_NODELIST", "n[1-4]"},
                              {"SLURM_RESTART_COUNT", "2"}});
  ASSERT_TRUE(full);
  EXPECT_EQ(full->restarts, 2);
  EXPECT_EQ(text_of(*full), "Slurm job 4711 (train, partition low) on n[1-4], restart 2");
  const auto array = job_with({{"SLURM_JOB_ID", "4702"},
                               {"SLURM_ARRAY_JOB_ID", "4700"},
                               {"SLURM_ARRAY_TASK_ID", "1"},
                               {"SLURM_JOB_PARTITION", "low"}});
  ASSERT_TRUE(array);
  EXPECT_EQ(text_of(*array), "Slurm job 4700_1 (partition low)");
}

}  // namespace
}  // namespace lyceum
