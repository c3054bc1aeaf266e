#include "io/data/records/prompts.h"

#include <algorithm>

#include "core/error.h"
#include "io/data/records/json_lines.h"
#include "io/data/records/json_record.h"
#include "io/data/records/record_formats.h"
#include "io/data/records/text_lines.h"
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

Prompt chat_prompt(std::string_view system, std::string_view text) {
  Prompt prompt;
  if (!system.empty()) prompt.messages.push_back({.role = "system", .text = replace_invalid_utf8(system)});
  prompt.messages.push_back({.role = "user", .text = replace_invalid_utf8(text)});
  return prompt;
}

std::vector<Prompt> read_prompts(const std::filesystem::path& file, bool chat, std::string_view system) {
  const bool records = &format_by_name(file) == &json_lines;
  std::vector<Prompt> prompts;
  for (const TextLine& line : read_text_lines(file)) {
    try {
      if (records) {
        prompts.push_back(prompt_of_record(line.text, chat, system));
      } else if (chat) {
        prompts.push_back(chat_prompt(system, line.text));
      } else {
        prompts.push_back({.text = line.text});
      }
      prompts.back().location = line.location;
    } catch (const Error& error) {
      const std::string_view problem = error.what();
      if (problem == "empty") {
        fail(ExitCode::bad_input, "{}: the record has an empty \"prompt\"", line.location);
      }
      fail(ExitCode::bad_input, "{}: a record {}", line.location, problem);
    }
  }
  require_input(!prompts.empty(), "{} has no prompts", file.string());
  return prompts;
}

}  // namespace lyceum
