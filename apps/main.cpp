#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/output.h"
#include "apps/version.h"
#include "config/run.h"
#include "core/error.h"
#include "core/heap.h"
#include "core/launcher.h"
#include "core/printable.h"
#include "core/thread_waiting.h"
#include "io/checkpoint/checkpoint.h"
#include "io/text/nearest_word.h"
#include "parallel/comm/last_word.h"
#include "train/run/preflight.h"
#include "train/run/stop_request.h"

namespace {

using namespace lyceum;

struct Command {
  std::function<int(const MpiSession&, const Arguments&)> run;
  const char* help;
};

/// Wraps a command that needs one rank: the other ranks of a job return 0 at once.
auto alone(int (*run)(const Arguments&)) {
  return
      [run](const MpiSession& session, const Arguments& arguments) { return session.rank() == 0 ? run(arguments) : 0; };
}

const std::map<std::string, Command>& commands() {
  static const std::map<std::string, Command> all{
      {"train", {train_command, "train a model, or resume training; run it under mpirun"}},
      {"plan",
       {plan_command, "compute parameters, FLOPs, memory, communication and time of a model on a mesh; find a mesh"}},
      {"eval", {eval_command, "compute loss, perplexity and bits per byte of a checkpoint on validation data"}},
      {"generate", {generate_command, "generate text from a prompt with a checkpoint"}},
      {"tokenize", {alone(tokenize_command), "train a tokenizer; encode text and JSON lines as .bin/.idx"}},
      {"checkpoint", {alone(checkpoint_command), "list, show, verify and compare checkpoints"}},
      {"compare", {alone(compare_command), "show training runs side by side, as tables and as a page of curves"}},
      {"routing", {routing_command, "analyse how tokens are routed: from logs, or by running a checkpoint"}},
      {"convert",
       {convert_command,
        "transform a checkpoint into a new run; import from or export to Hugging Face's transformers"}},
      {"completion", {alone(completion_command), "print a completion script for bash or zsh"}}};
  return all;
}

std::string usage() {
  std::string text =
      "lyceum trains sparse transformers on a cluster.\n\n"
      "usage: [mpirun -n RANKS] lyceum COMMAND [options] [--section.key=value …]\n\n";
  for (const auto& [name, command] : commands()) text += fmt::format("  {:<11} {}\n", name, command.help);
  return text +
         "\n`lyceum COMMAND --help` lists the options of a command, `lyceum train --list-keys` all configuration "
         "keys.\n"
         "Exit codes: 0 success, 1 checkpoint diff found a difference, 2 usage or configuration, 3 bad input file or\n"
         "checkpoint, 4 failed while running, 75 stopped on request after a checkpoint.\n";
}

/// Returns the text of --help or --version; empty if `name` is another word.
std::string about_program(const std::string& name) {
  if (name == "--help" || name == "-h" || name == "help") return usage();
  if (name == "--version") return fmt::format("lyceum {}\n{}\n", program_version(), program_build());
  return {};
}

/// Reports an error as one line on stderr, once if several ranks have the same error, and ends the job.
[[noreturn]] void end_job(const MpiSession& session, ExitCode code, const std::string& command,
                          const std::string& message, const ReportedElsewhere* elsewhere = nullptr) {
  no_more_stop_requests(static_cast<int>(code));
  const std::string rank = session.size() > 1 ? fmt::format("rank {} on {}: ", session.rank(), session.host()) : "";
  session.report({.code = code,
                  .line = fmt::format("lyceum {}: {}{}", printable(command), rank, message),
                  .reported_elsewhere = elsewhere != nullptr,
                  .reporter = elsewhere ? elsewhere->reporter() : 0,
                  .ended = ended_by_launcher});
}

/// Reports an error that occurred before there is a session, once per machine, and ends this process.
[[noreturn]] void end_unstarted(ExitCode code, const std::string& command, const std::string& message) {
  if (LastWord().take()) std::fputs(fmt::format("lyceum {}: {}\n", printable(command), message).c_str(), stderr);
  std::exit(static_cast<int>(code));
}

std::string base_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

/// Throws a usage Error for an option whose path begins with ~, since a folder of that name is never meant.
void require_replaced_home(const Arguments& arguments) {
  const std::set<std::string> texts{"--prompt", "--stop", "--system", "--title"};  // options that name no path
  for (const std::string& argument : arguments) {
    const std::size_t at = std::min(argument.find('='), argument.size());
    const std::string name = argument.substr(0, at), value = argument.substr(std::min(at + 1, argument.size()));
    const bool of_home = name.starts_with("--") && !texts.contains(name) && (value == "~" || value.starts_with("~/"));
    require_usage(!of_home, "{}: shells do not replace ~ behind =; write {} {}", argument, name, value);
  }
}

int run(const MpiSession& session, const std::string& name, const Arguments& arguments) {
  const auto command = commands().find(name);
  if (command == commands().end()) {
    std::vector<std::string> names;
    for (const auto& [known, unused] : commands()) names.push_back(known);
    const std::string nearest = nearest_word(name, names);
    fail(ExitCode::usage, "no such command '{}': {}", name,
         nearest.empty() ? "see `lyceum --help`" : "did you mean " + nearest + "?");
  }
  require_replaced_home(arguments);
  return command->second.run(session, arguments);
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond ulimit -f fails and is reported
  const std::string name = argc > 1 ? argv[1] : "--help";
  let_waiting_threads_sleep();
  limit_heap();
  if (name == "train") listen_for_stop_requests();
  std::optional<MpiSession> session;
  try {
    if (const std::string text = about_program(name); !text.empty()) {
      if (launched_rank().value_or(0) == 0) print(text);
      return argc > 1 ? 0 : static_cast<int>(ExitCode::usage);
    }
    session.emplace();
    if (session->size() > 1) {
      require_one_program(session->world(RunConfig{}.timeout_seconds), program_version() + ", " + program_build());
    }
    const int code = run(*session, name, Arguments(argv + 2, argv + argc));
    if (code != static_cast<int>(ExitCode::resubmit)) flush_output();  // 75 also if stdout fails
    no_more_stop_requests(code);
    if (code == static_cast<int>(ExitCode::resubmit)) session->end(ExitCode::resubmit);
    return code;
  } catch (const Error& error) {
    if (!session) {
      end_unstarted(error.code(), name, error.what());
    }
    // Only errors of the program itself are reported with their source location; a full disk needs none.
    const bool inner = error.code() == ExitCode::failed && !dynamic_cast<const CheckpointNotSaved*>(&error);
    const std::string location = fmt::format(" [{}:{}]", base_name(error.where().file_name()), error.where().line());
    end_job(*session, error.code(), name, error.what() + (inner ? location : ""),
            dynamic_cast<const ReportedElsewhere*>(&error));
  } catch (const std::exception& error) {  // an exception of a library
    const std::string message = printable(error.what());
    if (session) end_job(*session, ExitCode::failed, name, message);
    end_unstarted(ExitCode::failed, name, message);
  }
}
