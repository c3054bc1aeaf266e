#include "io/run/batch_job.h"

#include <fmt/format.h>

#include <cstdlib>

namespace lyceum {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::optional<BatchJob> batch_job() {
  std::string id = environment("SLURM_JOB_ID");
  if (id.empty()) return {};
  if (const std::string array = environment("SLURM_ARRAY_JOB_ID"); !array.empty()) {
    id = fmt::format("{}_{}", array, environment("SLURM_ARRAY_TASK_ID"));
  }
  return BatchJob{.cluster = environment("SLURM_CLUSTER_NAME"),
                  .id = id,
                  .name = environment("SLURM_JOB_NAME"),
                  .partition = environment("SLURM_JOB_PARTITION"),
                  .user = environment("SLURM_JOB_USER"),
                  .nodes = environment("SLURM_JOB_NODELIST"),
                  .restarts = std::atoi(environment("SLURM_RESTART_COUNT").c_str())};
}

std::string text_of(const BatchJob& job) {
  std::string text = fmt::format("Slurm job {}", job.id);
  if (!job.name.empty()) text += fmt::format(" ({}", job.name);
  if (!job.partition.empty()) text += fmt::format("{}partition {}", job.name.empty() ? " (" : ", ", job.partition);
  if (!job.name.empty() || !job.partition.empty()) text += ')';
  if (!job.nodes.empty()) text += fmt::format(" on {}", job.nodes);
  if (job.restarts > 0) text += fmt::format(", restart {}", job.restarts);
  return text;
}

}  // namespace lyceum
