#pragma once

#include <optional>
#include <string>

namespace lyceum {

/// The batch job that this process runs in, according to Slurm's environment. [sbatch(1), "output environment
/// variables"]
struct BatchJob {
  std::string cluster, id;            // "4711", of an array "4700_11"
  std::string name, partition, user;  // empty where the environment does not say
  std::string nodes;                  // "n[1-4]"
  int restarts = 0;                   // how often it was requeued
};

/// None outside a job.
std::optional<BatchJob> batch_job();

/// "Slurm job 4711 (train, partition low) on n[1-4], restart 2"
std::string text_of(const BatchJob& job);

}  // namespace lyceum
