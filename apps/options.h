#pragma once

#include <boost/program_options.hpp>

#include <string>

#include "apps/commands.h"

namespace lyceum {

/// A command's own options, read; what is left over is about the configuration.
struct ParsedOptions {
  boost::program_options::variables_map values;
  Arguments rest;  // --config FILE, --section.key=value, --print-config, --list-keys: for read_config
  bool help = false;
  std::string help_text;  // usage and options
};

/// Reads `options` (a --help is added) from the arguments. Throws a usage Error for anything that is neither an option
/// nor about the configuration.
ParsedOptions parse_options(boost::program_options::options_description& options, const Arguments& arguments,
                            const std::string& usage,
                            const char* config_help = "an INI file; its keys win over the checkpoint's");

}  // namespace lyceum
