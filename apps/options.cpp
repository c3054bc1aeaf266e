#include "apps/options.h"

#include <sstream>

#include "core/error.h"

namespace lyceum {

namespace po = boost::program_options;

ParsedOptions parse_options(po::options_description& options, const Arguments& arguments, const std::string& usage) {
  options.add_options()("help", "this");
  ParsedOptions parsed;
  std::ostringstream help;
  help << usage << "\n\n" << options;
  parsed.help_text = help.str();
  try {
    // Boost knows no keys with values of other commands: --section.key goes by unseen, the dot tells it.
    Arguments own;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      const bool key = argument.starts_with("--") && argument.substr(0, argument.find('=')).find('.') != argument.npos;
      (key ? parsed.rest : own).push_back(argument);
      if (key && argument.find('=') == argument.npos && i + 1 < arguments.size()) parsed.rest.push_back(arguments[++i]);
    }
    using namespace po::command_line_style;
    po::store(po::command_line_parser(own)
                  .options(options)
                  .positional({})
                  .style(allow_long | long_allow_adjacent | long_allow_next)
                  .run(),
              parsed.values);
    po::notify(parsed.values);
  } catch (const po::error& error) {
    fail(ExitCode::usage, "{}; --help tells the options", error.what());
  }
  parsed.help = parsed.values.count("help") > 0;
  return parsed;
}

}  // namespace lyceum
