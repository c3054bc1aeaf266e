#pragma once

#include <string>

#include "config/feature.h"

namespace lyceum {

struct ParallelConfig;

/// Returns the remedies for ranks that do not form the mesh: ": start 2 ranks (mpirun -n 2), or set parallel.expert = 1
/// or 4". `key` is the name of `member`. Empty if there are none.
std::string ranks_advice(const Config& config, int world, const char* key, int ParallelConfig::*member);
/// Returns the remedy for a batch that data ranks cannot share: ": set a multiple of 6", or nothing.
std::string batch_advice(Config config, int world);
/// Returns the remedy for micro-batches that do not divide a rank's share: ": set batch.micro = 1, 2 or 4", or nothing.
std::string micro_batch_advice(const Config& config, int world);

}  // namespace lyceum
