#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "io/data/loader/token_loader.h"
#include "parallel/comm/ledger.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// What a rank would do in one step.
struct StepRehearsal {
  std::vector<LedgerEntry> operations;  // on all groups, in the order of its calls
  Mesh mesh;                            // its groups, which counted their traffic
};
/// Runs the code of a training step as rank `rank` of `ranks`, where nothing is computed and nobody else is there: it
/// takes neither the step's time nor its memory. Experts are taken to be chosen equally often. `step`: the steps before
/// it, by which it may be audited or computed again.
StepRehearsal rehearse_step(const Config& config, const TokenLoader& loader, int rank, int ranks,
                            std::int64_t step = 0);

/// Collective over `world`, all ranks of a job: throws, on all ranks the same usage Error, which names the ranks that
/// run another program than rank 0. `program`: version, commit and build of this rank's.
void require_one_program(const ProcessGroup& world, const std::string& program);

/// Collective over `world`, before a training run takes memory: throws, on all ranks the same Error, where a rank has
/// another configuration than the others (usage), or where what the ranks are going to call in a step does not fit
/// together: instead of a hang. `config_text`: the resolved configuration as INI.
void preflight(const Config& config, const std::string& config_text, const ProcessGroup& world,
               const TokenLoader& loader);

}  // namespace lyceum
