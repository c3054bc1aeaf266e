#include "io/data/records/prompts.h"

#include <boost/algorithm/string/predicate.hpp>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "io/data/records/json_record.h"
#include "io/files/whole_file.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

Prompt prompt_of_record(std::string_view line, bool chat, std::string_view system) {
  if (!chat) return {.text = text_of_record(line, "prompt")};
  Prompt prompt{.messages = messages_of_prompt(line)};
  const auto is_system = [](const ChatMessage& each) { return each.role == "system"; };
  if (!system.empty() && std::ranges::none_of(prompt.messages, is_system)) {
    prompt.messages.insert(prompt.messages.begin(), {.role = "system", .text = std::string(system)});
  }
  return prompt;
}

}  // namespace

Prompt chat_prompt(std::string_view system, std::string text) {
  Prompt prompt;
  if (!system.empty()) prompt.messages.push_back({.role = "system", .text = std::string(system)});
  prompt.messages.push_back({.role = "user", .text = std::move(text)});
  return prompt;
}

std::vector<Prompt> read_prompts(const std::filesystem::path& file, bool chat, std::string_view system) {
  const std::string text = read_whole_file(file);
  require_input(is_utf8(text), "{} is not UTF-8 text", file.string());
  const std::string extension = file.extension().string();
  const bool records = boost::iequals(extension, ".jsonl") || boost::iequals(extension, ".ndjson");
  std::vector<Prompt> prompts;
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      prompts.push_back(records ? prompt_of_record(line, chat, system)
                        : chat  ? chat_prompt(system, std::string(line))
                                : Prompt{.text = std::string(line)});
    } catch (const Error& error) {
      fail(ExitCode::bad_input, "{}:{}: a record {}", file.string(), number, error.what());
    }
  }
  require_input(!prompts.empty(), "{} has no prompts", file.string());
  return prompts;
}

}  // namespace lyceum
