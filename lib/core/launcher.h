#pragma once

#include <optional>

namespace lyceum {

// Facts about the job from the environment variables that mpirun, or srun with PMIx, sets for its processes. These
// functions work before MPI is initialised and in processes that never initialise it.

/// Returns this process's rank in the job; none if it was not started by a launcher that Open MPI supports.
std::optional<int> launched_rank();
/// Returns the number of ranks of the job on this host. Only mpirun states it; under other launchers, such as srun, the
/// result is 1.
int launched_ranks_here();
/// True if the launcher is Open MPI's mpirun, which kills the other ranks when one fails.
bool launched_by_mpirun();

}  // namespace lyceum
