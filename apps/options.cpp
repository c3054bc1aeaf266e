#include "apps/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/aliases.h"
#include "core/error.h"
#include "io/text/nearest_word.h"

namespace lyceum {

namespace po = boost::program_options;

namespace {

using HelpRows = std::vector<std::pair<std::string, std::string>>;  // "--tokens N (=100)", and its description

CommandHelp laid_out(const std::string& usage, const std::string& about, const po::options_description& options,
                     const HelpRows& more) {
  CommandHelp help{.text = fmt::format("usage: {}\n\n{}\n\noptions:\n", usage, about), .options = {}};
  HelpRows rows;
  for (const auto& option : options.options()) {
    help.options.push_back("--" + option->long_name());
    const std::string value = option->format_parameter();
    rows.emplace_back(help.options.back() + (value.empty() ? "" : ' ' + value), option->description());
  }
  rows.insert(rows.end(), more.begin(), more.end());
  rows.emplace_back("--help", "show this text");
  help.options.emplace_back("--help");
  std::size_t widest = 0;
  for (const auto& [name, meaning] : rows) widest = std::max(widest, name.size());
  for (const auto& [name, meaning] : rows) help.text += fmt::format("  {:<{}}  {}\n", name, widest, meaning);
  return help;
}

/// Returns the option that was probably meant: "--optim.lr" for "--lr" and "--learning_rate", "--tokens" for "--token";
/// empty if none is similar.
std::string meant_option(const po::options_description& options, std::string name) {
  name = name.substr(0, name.find('='));
  name.erase(0, name.find_first_not_of('-'));
  if (const auto key = key_of_other_name(name); !key.empty()) return "--" + key;
  std::vector<std::string> names;
  for (const auto& option : options.options()) names.push_back(option->long_name());
  const std::string nearest = nearest_word(name, names);
  return nearest.empty() ? nearest : "--" + nearest;
}

}  // namespace

CommandHelp describe_command(const std::string& usage, const std::string& about,
                             const po::options_description& options) {
  return laid_out(usage, about, options, {});
}

CommandHelp describe_configured(const std::string& usage, const std::string& about,
                                const po::options_description& options, const char* config_help) {
  CommandHelp help = laid_out(usage, about, options,
                              {{"--config FILE", config_help},
                               {"--section.key=value", "set a configuration key; overrides the file"},
                               {"--print-config", "print the configuration and where each value comes from"},
                               {"--list-keys", "print every key with its allowed values, default and meaning"}});
  for (const char* option : {"--config", "--print-config", "--list-keys"}) help.options.emplace_back(option);
  help.configured = true;
  return help;
}

ParsedOptions parse_options(po::options_description options, const Arguments& arguments, std::size_t most_words) {
  options.add_options()("help", "")("stray word", po::value<Arguments>());
  po::positional_options_description stray;
  stray.add("stray word", -1);
  ParsedOptions parsed;
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
                  .positional(stray)
                  .style(allow_long | long_allow_adjacent | long_allow_next)
                  .run(),
              parsed.values);
    po::notify(parsed.values);
  } catch (const po::unknown_option& error) {
    const std::string meant = meant_option(options, error.get_option_name());
    fail(ExitCode::usage, "{}: {}", error.what(), meant.empty() ? "see --help" : "did you mean " + meant + "?");
  } catch (const po::error& error) {
    fail(ExitCode::usage, "{}; see --help", error.what());
  }
  if (parsed.values.count("stray word")) parsed.words = parsed.values["stray word"].as<Arguments>();
  require_usage(parsed.words.size() <= most_words, "'{}' is not an option: see --help",
                parsed.words.size() <= most_words ? "" : parsed.words[most_words]);
  parsed.help = parsed.values.count("help") > 0;
  return parsed;
}

}  // namespace lyceum
