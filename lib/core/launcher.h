#pragma once

#include <optional>

namespace lyceum {

/// What mpirun, or srun with PMIx, sets in the environment of the processes that it starts: before MPI is there, and
/// where it is not to be.

/// This process's rank in the job; none where no launcher that Open MPI understands started it.
std::optional<int> launched_rank();
/// Ranks of the job on this host; 1 where nobody says.
int launched_ranks_here();
/// Whether Open MPI's mpirun is the launcher: it kills the other ranks when one fails.
bool launched_by_mpirun();

}  // namespace lyceum
