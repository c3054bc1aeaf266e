#include "core/launcher.h"

#include <algorithm>
#include <cstdlib>

namespace lyceum {

std::optional<int> launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  }
  return {};
}

int launched_ranks_here() {
  const char* ranks = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  return ranks ? std::max(1, std::atoi(ranks)) : 1;
}

bool launched_by_mpirun() { return std::getenv("OMPI_MCA_orte_launch") != nullptr; }

}  // namespace lyceum
