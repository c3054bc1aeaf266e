#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "io/data/loader/token_loader.h"
#include "parallel/comm/ledger.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// The communication of one rank in one training step.
struct StepRehearsal {
  std::vector<LedgerEntry> operations;  // on all groups, in the order of the rank's calls
  std::int64_t messages = 0;            // see messages_of_step(); 0 in other rehearsals
  Mesh mesh;                            // the groups of the rank, which counted their traffic
};
/// Local. Runs the code of a training step as rank `rank` of `ranks` on a RehearsalStream: without other ranks, without
/// computing, and without the memory of a step (docs/architecture.md, "rehearsal"). Assumes that all experts are chosen
/// equally often. `step`: number of steps before this one, which decides if the step is audited or replayed, and if
/// experts move after it.
StepRehearsal rehearse_step(const Config& config, const TokenLoader& loader, int rank, int ranks,
                            std::int64_t step = 0);
/// Local. Returns the number of MPI messages that rank `rank` of `ranks` sends in the first step, from a rehearsal like
/// rehearse_step(). See ProcessGroup::sent_messages().
std::int64_t messages_of_step(const Config& config, const TokenLoader& loader, int rank, int ranks);

/// Collective over `world`, which has all ranks of the job. Throws a usage Error, equal on all ranks, that names the
/// ranks with another program than rank 0. `program`: version, commit and build of this rank's program.
void require_one_program(const ProcessGroup& world, const std::string& program);

/// Collective over `world`, which has all ranks of the job. Throws a usage Error, equal on all ranks, that names the
/// ranks whose configuration is not that of rank 0. `text`: the resolved configuration as INI. Call before anything
/// that depends on the configuration and is collective.
void require_same_config(const ProcessGroup& world, const std::string& text);
/// Collective over `world`, which has all ranks of the job. Throws an Error on all ranks if the operations that they
/// are going to call in a step with this configuration do not match, so that the step would hang. Call before a
/// training run allocates memory.
void require_matching_steps(const Config& config, const ProcessGroup& world, const TokenLoader& loader);

}  // namespace lyceum
