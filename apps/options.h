#pragma once

#include <boost/program_options.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "apps/commands.h"

namespace lyceum {

/// A command for its readers.
struct CommandHelp {
  std::string text;                  // what --help prints, in the one layout that all commands have
  std::vector<std::string> options;  // "--tokens": what a shell completes
  bool configured = false;           // it takes keys of the configuration, too
};
/// The layout: usage (without that word), what the command does, its options; --help is added.
CommandHelp describe_command(const std::string& usage, const std::string& about,
                             const boost::program_options::options_description& options);
/// The same of a command that has a configuration.
CommandHelp describe_configured(const std::string& usage, const std::string& about,
                                const boost::program_options::options_description& options,
                                const char* config_help = "an INI file; its keys override the checkpoint's");

CommandHelp train_help();
CommandHelp plan_help();
CommandHelp eval_help();
CommandHelp generate_help();
CommandHelp tokenize_help();
CommandHelp checkpoint_help();
CommandHelp convert_help();
CommandHelp routing_help();
CommandHelp completion_help();

/// The arguments of a command that has a configuration, sorted.
struct ParsedOptions {
  boost::program_options::variables_map values;
  Arguments words;  // that are no options
  Arguments rest;   // --config FILE, --section.key=value, --print-config, --list-keys: for read_config
  bool help = false;
};

/// Reads `options` (a --help is added) from the arguments, and at most so many words that are none. Throws a usage
/// Error for anything else that is not about the configuration.
ParsedOptions parse_options(boost::program_options::options_description options, const Arguments& arguments,
                            std::size_t most_words = 0);

}  // namespace lyceum
