#include <iostream>

#include "apps/options.h"
#include "apps/run_config.h"
#include "apps/version.h"
#include "train/trainer.h"

namespace lyceum {

namespace {

constexpr const char* train_about =
    R"(Trains, or goes on where the newest checkpoint of run.dir ended (checkpoint.resume = auto). Writes to run.dir:
  metrics.jsonl   one JSON object a step
  routing.h5      which expert got how many tokens: `lyceum routing report`
  checkpoints/    `lyceum checkpoint ls`
  starts.jsonl    when it was started, with which program and configuration
  gemm.json       on GPUs with run.gemm_choice = timed: the algorithms of matrix products

Ctrl-C (SIGINT), SIGTERM and SIGUSR1 finish the step in hand, save a checkpoint and end with exit code 75; a second
Ctrl-C or SIGTERM ends at once. mpirun kills a second after it was interrupted: source scripts/mpi-env.sh before it.)";

boost::program_options::options_description train_options() {
  boost::program_options::options_description options;
  options.add_options()("remeasure",
                        "measure this machine's FLOP/s anew, which MFU counts against; else once a build; not of GPUs "
                        "whose peak is known");
  return options;
}

}  // namespace

CommandHelp train_help() {
  return describe_configured("mpirun -n RANKS lyceum train --config FILE [--section.key=value …]", train_about,
                             train_options(), "an INI file, see configs/");
}

int train_command(const MpiSession& session, const Arguments& arguments) {
  const ParsedOptions parsed = parse_options(train_options(), arguments);
  if (parsed.help) {
    if (session.rank() == 0) std::cout << train_help().text;
    return 0;
  }
  const std::optional<LoadedConfig> loaded = configure(session, parsed.rest);
  if (!loaded) return 0;
  const auto setup = set_up(loaded->config, session);
  setup->program = program_version();
  const auto lock = hold_run_directory(loaded->config, session);
  return static_cast<int>(Trainer(loaded->config, to_ini(loaded->config), *setup, lock.get(), std::cout,
                                  parsed.values.count("remeasure") > 0)
                              .run());
}

}  // namespace lyceum
