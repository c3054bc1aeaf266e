#include <boost/algorithm/string/join.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/options.h"
#include "apps/output.h"
#include "apps/run_config.h"
#include "apps/version.h"
#include "config/training_stages.h"
#include "io/data/encoding/chat.h"
#include "io/files/descriptor_limit.h"
#include "train/run/starting_point.h"
#include "train/run/trainer.h"

namespace lyceum {

namespace {

constexpr const char* train_about =
    R"(Trains a model, or resumes from the newest checkpoint in run.dir (checkpoint.resume = auto). Writes to run.dir:
  metrics.jsonl   one JSON object per step
  routing.h5      how many tokens each expert received: `lyceum routing report`
  checkpoints/    the checkpoints: `lyceum checkpoint ls`
  starts.jsonl    time, program and configuration of every start
  config.ini      the configuration of the last start: `lyceum train --config run.dir/config.ini` continues the run
  gemm.json       on GPUs with run.gemm_choice = timed: the algorithms chosen for matrix products

Ctrl-C (SIGINT), SIGTERM and SIGUSR1 finish the current step, save a checkpoint and exit with code 75; a second
Ctrl-C or SIGTERM ends at once. An interrupted mpirun kills its ranks after a second, which may be too early: source
scripts/mpi-env.sh before mpirun to avoid this.)";

boost::program_options::options_description train_options() {
  boost::program_options::options_description options;
  options.add_options()("remeasure",
                        "measure the peak FLOP/s for MFU again, instead of once per build; not for GPUs "
                        "whose peak is known");
  return options;
}

/// Collective. Returns presumed_stage(); 1 if a rank has a configuration without stages or with mistakes, which is
/// reported later.
int first_stage_of(const LoadedConfig& given, const MpiSession& session) {
  if (given.print_config || given.list_keys) return 1;
  const ProcessGroup world = session.world(given.config.run.timeout_seconds);
  std::array<std::int64_t, 1> unknown{given.mistakes.empty() && stage_count(given.config) > 1 ? 0 : 1};
  world.all_reduce(std::span(unknown), Reduction::max);
  return unknown[0] != 0 ? 1 : presumed_stage(given.config, world);
}

/// Returns the chat template of a run: data.chat, or if it is auto that of the first stage with chats. Past stages
/// count, too, so that a run keeps its template; token files that no longer exist have no chats. Warns of stages whose
/// chats have other templates only. Throws a usage Error if data.chat names a template that no stage has, or if it is
/// auto and the chats of the first stage have several.
std::string chat_of_stages(const Config& config, const MpiSession& session) {
  std::string chat = config.data.chat;
  std::vector<std::set<std::string>> templates;  // of each stage's chats
  for (int stage = 1; stage <= stage_count(config); ++stage) {
    templates.push_back(chat_templates(config_of_stage(config, stage).data.train));
  }
  const auto first = std::ranges::find_if(templates, [](const auto& of) { return !of.empty(); });
  if (first == templates.end()) return chat;
  if (std::ranges::none_of(templates, [&](const auto& of) { return of.contains(chat); })) {
    const auto stage = static_cast<int>(first - templates.begin()) + 1;
    chat = chat_template_of_run(chat, config_of_stage(config, stage).data.train);
  }
  for (std::size_t s = 0; s < templates.size(); ++s) {
    if (templates[s].empty() || templates[s].contains(chat) || session.rank() != 0) continue;
    fmt::print(stderr, "warning: the chats of stage {} are in the format {}, but the run has data.chat = {}\n", s + 1,
               boost::algorithm::join(templates[s], ", "), chat);
  }
  return chat;
}

}  // namespace

CommandHelp train_help() {
  return describe_configured("mpirun -n RANKS lyceum train --config FILE [--section.key=value …]", train_about,
                             train_options(), "an INI file, see configs/");
}

int train_command(const MpiSession& session, const Arguments& arguments) {
  const ParsedOptions parsed = parse_options(train_options(), arguments);
  if (parsed.help) {
    if (session.rank() == 0) print(train_help().text);
    return 0;
  }
  const LoadedConfig given = read_config(parsed.rest);
  const int first_stage = first_stage_of(given, session);
  std::optional<LoadedConfig> loaded = configure(session, given, first_stage);
  if (!loaded) return 0;
  raise_descriptor_limit();
  loaded->config.data.chat = chat_of_stages(loaded->config, session);
  const auto setup = set_up(loaded->config, session, {}, first_stage);
  setup->program = program_version();
  const auto lock = lock_run_directory(loaded->config, session);
  Trainer trainer(loaded->config, to_ini(loaded->config), *setup, std::cout,
                  {.lock = lock.get(), .given = &given.config, .remeasure = parsed.values.count("remeasure") > 0});
  return static_cast<int>(trainer.run());
}

}  // namespace lyceum
