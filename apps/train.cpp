#include <iostream>

#include "apps/run_config.h"
#include "train/trainer.h"

namespace lyceum {

namespace {

constexpr const char* help =
    R"(usage: mpirun -n RANKS lyceum train --config FILE [--section.key=value …]

Trains, or goes on where the newest checkpoint of run.dir ended (checkpoint.resume = auto). Writes to run.dir:
  metrics.jsonl   one JSON object a step
  routing.h5      which expert got how many tokens: `lyceum routing report`
  checkpoints/    `lyceum checkpoint ls`
  gemm.json       on GPUs with run.gemm_choice = timed: the algorithms of matrix products

  --config FILE           an INI file, see configs/
  --section.key=value     a key of it; wins over the file
  --print-config          the configuration that would be used and where each value came from
  --list-keys             every key, what it may be, its default, what it means
  --help                  this

Ctrl-C (SIGINT), SIGTERM and SIGUSR1 finish the step in hand, save a checkpoint and end with exit code 75; a second
Ctrl-C or SIGTERM ends at once. mpirun kills a second after it was interrupted: source scripts/mpi-env.sh before it.
)";

}  // namespace

int train_command(const MpiSession& session, const Arguments& arguments) {
  const std::optional<LoadedConfig> loaded = configure(session, arguments, help);
  if (!loaded) return 0;
  require_usage(loaded->rest.empty(), "'{}' is no option of train: `lyceum train --help` tells them",
                loaded->rest.empty() ? "" : loaded->rest.front());
  const auto setup = set_up(loaded->config, session);
  const auto lock = hold_run_directory(loaded->config, session);
  return static_cast<int>(Trainer(loaded->config, to_ini(loaded->config), *setup, lock.get(), std::cout).run());
}

}  // namespace lyceum
