#include "apps/options.h"

#include <sstream>

#include "core/error.h"

namespace lyceum {

namespace po = boost::program_options;

ParsedOptions parse_options(po::options_description& options, const Arguments& arguments, const std::string& usage,
                            const char* config_help) {
  options.add_options()("help", "this");
  po::options_description shown = options;
  shown.add_options()("config", po::value<std::string>(), config_help)(
      "section.key", po::value<std::string>(), "a key of the configuration; wins over the file")(
      "print-config", "the configuration that would be used and where each value came from")(
      "list-keys", "every key, what it may be, its default, what it means");
  ParsedOptions parsed;
  std::ostringstream help;
  help << usage << "\n\n" << shown;
  parsed.help_text = help.str();
  try {
    Arguments own;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      const std::string name = argument.substr(0, argument.find('='));
      const bool key = name.starts_with("--") && (name == "--config" || name.find('.') != name.npos);
      const bool configures = key || argument == "--print-config" || argument == "--list-keys";
      (configures ? parsed.rest : own).push_back(argument);
      if (key && name == argument && i + 1 < arguments.size()) parsed.rest.push_back(arguments[++i]);
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
