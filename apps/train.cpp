#include <iostream>

#include "apps/run_config.h"
#include "apps/version.h"
#include "train/trainer.h"

namespace lyceum {

namespace {

constexpr const char* help =
    R"(usage: mpirun -n RANKS lyceum train --config FILE [--section.key=value …]

Trains, or goes on where the newest checkpoint of run.dir ended (checkpoint.resume = auto). Writes to run.dir:
  metrics.jsonl   one JSON object a step
  routing.h5      which expert got how many tokens: `lyceum routing report`
  checkpoints/    `lyceum checkpoint ls`
  starts.jsonl    when it was started, with which program and configuration
  gemm.json       on GPUs with run.gemm_choice = timed: the algorithms of matrix products

  --config FILE           an INI file, see configs/
  --section.key=value     a key of it; wins over the file
  --print-config          the configuration that would be used and where each value came from
  --list-keys             every key, what it may be, its default, what it means
  --help                  this

SIGUSR1 finishes the step in hand, saves a checkpoint and ends with exit code 75; SIGTERM ends at once.
)";

}  // namespace

int train_command(const MpiSession& session, const Arguments& arguments) {
  const std::optional<LoadedConfig> loaded = configure(session, arguments, help);
  if (!loaded) return 0;
  require_usage(loaded->rest.empty(), "'{}' is no option of train: `lyceum train --help` tells them",
                loaded->rest.empty() ? "" : loaded->rest.front());
  const auto setup = set_up(loaded->config, session);
  setup->program = program_version();
  const auto lock = hold_run_directory(loaded->config, session);
  return static_cast<int>(Trainer(loaded->config, to_ini(loaded->config), *setup, lock.get(), std::cout).run());
}

}  // namespace lyceum
