#include <boost/algorithm/string/join.hpp>
#include <boost/algorithm/string/replace.hpp>
#include <fmt/format.h>

#include <array>

#include "apps/options.h"
#include "apps/output.h"
#include "config/keys.h"
#include "core/error.h"

namespace lyceum {
namespace {

struct CompletedCommand {
  const char* name;
  CommandHelp (*help)();
  const char* words;  // words that may follow the command
};
constexpr std::array completed_commands = std::to_array<CompletedCommand>({
    {"train", train_help, ""},
    {"plan", plan_help, ""},
    {"eval", eval_help, ""},
    {"generate", generate_help, ""},
    {"tokenize", tokenize_help, ""},
    {"checkpoint", checkpoint_help, "ls show verify diff "},
    {"compare", compare_help, ""},
    {"convert", convert_help, "reset average merge upcycle insert prune modulize import-hf export-hf "},
    {"routing", routing_help, "report dump difficult domains flow "},
    {"completion", completion_help, "bash zsh "},
});

// In bash `=` ends a word, in zsh it does not. If nothing matches, file names are completed.
constexpr const char* script = R"(_lyceum() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} key='' given='' words='' candidate
  local keys='@KEYS@'
  if [[ $word == '=' ]]; then
    key=$before word=''
  elif [[ $before == '=' ]]; then
    key=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $word == --*=* ]]; then
    key=${word%%=*} given=${word%%=*}=
  fi
  if [[ -n $key ]]; then
    case $key in
@VALUES@    esac
  elif ((COMP_CWORD == 1)); then
    words='@COMMANDS@ --help --version'
  else
    case ${COMP_WORDS[1]} in
@OPTIONS@    esac
  fi
  COMPREPLY=()
  for candidate in $(printf '%s' "$words"); do
    if [[ $given$candidate == "$word"* ]]; then COMPREPLY+=("$given$candidate"); fi
  done
  if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null || true; fi
  return 0
}
complete -o default -F _lyceum lyceum
)";

std::string completion_script() {
  Config config;
  std::vector<std::string> keys, commands;
  std::string values, options;
  for (const ConfigKey& key : keys_of(config)) {
    keys.push_back(fmt::format("--{}=", key.name));
    const std::string kind = key.setting.name();
    if (kind.find(" | ") == std::string::npos) continue;
    values += fmt::format("      --{}) words='{}' ;;\n", key.name,
                          boost::replace_all_copy(kind, " | ", " "));  // "auto cpu cuda"
  }
  for (const CompletedCommand& command : completed_commands) {
    const CommandHelp help = command.help();
    commands.emplace_back(command.name);
    options += fmt::format("      {}) words='{}{}'{} ;;\n", command.name, command.words, boost::join(help.options, " "),
                           help.configured ? "\" $keys\"" : "");
  }
  std::string text = script;
  boost::replace_first(text, "@KEYS@", boost::join(keys, " "));
  boost::replace_first(text, "@VALUES@", values);
  boost::replace_first(text, "@COMMANDS@", boost::join(commands, " "));
  boost::replace_first(text, "@OPTIONS@", options);
  return text;
}

}  // namespace

CommandHelp completion_help() {
  return describe_command("lyceum completion bash | zsh",
                          "Prints a script that completes commands, options, keys and values of keys in a shell:\n"
                          "  source <(lyceum completion bash)     in ~/.bashrc; likewise zsh in ~/.zshrc",
                          {});
}

int completion_command(const Arguments& arguments) {
  const std::string shell = arguments.empty() ? "" : arguments.front();
  if (shell == "--help") {
    print(completion_help().text);
    return 0;
  }
  require_usage(arguments.size() == 1 && (shell == "bash" || shell == "zsh"), "expected bash or zsh; see --help");
  const char* bash_functions = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n";
  print(fmt::format("{}{}", shell == "zsh" ? bash_functions : "", completion_script()));
  return 0;
}

}  // namespace lyceum
