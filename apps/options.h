#pragma once

#include <boost/program_options.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "apps/commands.h"

namespace lyceum {

/// The description of a command for --help and shell completion.
struct CommandHelp {
  std::string text;                  // the text of --help, in the same layout for all commands
  std::vector<std::string> options;  // "--tokens": the options for shell completion
  bool configured = false;           // true if the command accepts keys of the configuration
};
/// Returns the description of a command. `usage`: the line after "usage: ". `about`: its purpose. `options`: all
/// options but --help, which is added.
CommandHelp describe_command(const std::string& usage, const std::string& about,
                             const boost::program_options::options_description& options);
/// Does the same for a command that accepts keys of the configuration. `config_help`: the description of --config.
CommandHelp describe_configured(const std::string& usage, const std::string& about,
                                const boost::program_options::options_description& options,
                                const char* config_help = "an INI file; its keys override the checkpoint's");

/// Return the descriptions of the commands.
CommandHelp train_help();
CommandHelp plan_help();
CommandHelp eval_help();
CommandHelp generate_help();
CommandHelp tokenize_help();
CommandHelp checkpoint_help();
CommandHelp compare_help();
CommandHelp convert_help();
CommandHelp routing_help();
CommandHelp completion_help();

/// The parsed arguments of a command that has a configuration.
struct ParsedOptions {
  boost::program_options::variables_map values;
  Arguments words;  // positional words
  Arguments rest;   // --config FILE, --section.key=value, --print-config, --list-keys: arguments of read_config()
  bool help = false;
};

/// Parses the arguments by `options`, to which --help is added, and at most `most_words` positional words. Throws a
/// usage Error for any other argument that does not belong to the configuration.
ParsedOptions parse_options(boost::program_options::options_description options, const Arguments& arguments,
                            std::size_t most_words = 0);

}  // namespace lyceum
