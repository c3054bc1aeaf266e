#pragma once

#include <string>

#include "config/feature.h"

namespace lyceum {

struct ParallelConfig;

/// Returns the remedies if the ranks do not form the mesh: ": start 2 ranks (mpirun -n 2), or set parallel.expert = 1
/// or 4". `key` is the name of `member`. Empty if there is none.
std::string ranks_advice(const Config& config, int world, const char* key, int ParallelConfig::*member);
/// Returns the remedy for a batch.global that data ranks do not divide, as the end of the message that reports it, such
/// as ": set a multiple of 6". Empty if the configuration would still not fit `world` ranks. Does not check that there
/// is a mistake. Precondition: data_ranks() is not 0.
std::string batch_advice(Config config, int world);
/// Returns the remedy if micro-batches do not divide a rank's sequences: ": set batch.micro = 1, 2 or 4"; empty if
/// there is none. Precondition: data_ranks() is not 0.
std::string micro_batch_advice(const Config& config, int world);

}  // namespace lyceum
