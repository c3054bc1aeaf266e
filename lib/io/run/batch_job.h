#pragma once

#include <optional>
#include <string>

namespace lyceum {

/// The Slurm job of this process, from Slurm's environment variables. [sbatch(1), "output environment variables"]
struct BatchJob {
  std::string cluster, id;            // id: "4711", or "4700_11" for a task of an array
  std::string name, partition, user;  // empty if the environment does not have them
  std::string nodes;                  // list of nodes, such as "n[1-4]"
  int restarts = 0;                   // number of times that the job was requeued
};

/// Returns the job of this process; nothing if it is not in a job.
std::optional<BatchJob> batch_job();

/// Returns the job as text: "Slurm job 4711 (train, partition low) on n[1-4], restart 2".
std::string text_of(const BatchJob& job);

}  // namespace lyceum
