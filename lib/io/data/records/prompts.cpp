#include "io/data/records/prompts.h"

#include <boost/algorithm/string/predicate.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/error.h"
#include "io/data/records/json_lines.h"
#include "io/data/records/json_record.h"
#include "io/data/records/record_formats.h"
#include "io/data/records/text_lines.h"
#include "io/files/compressions.h"
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

/// True if lines that are read as prompts are probably JSON records. `name`: the file's name, uncompressed.
bool look_like_records(const std::filesystem::path& name, const std::vector<TextLine>& lines) {
  if (boost::algorithm::iequals(name.extension().native(), ".json")) return true;
  std::string beginning;
  for (const TextLine& line : lines) {
    if (beginning.size() < 64) beginning += line.text + "\n";
  }
  if (begins_with_list_of_records(beginning)) return true;
  return !lines.empty() && lines[0].text.starts_with('{') && nlohmann::json::accept(lines[0].text);
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
  const std::vector<TextLine> lines = read_text_lines(file);
  require_input(records || !look_like_records(uncompressed_name(file), lines),
                "{} looks like JSON, but its name makes each line a prompt: write one record per line, {{\"prompt\": "
                "…}}, and name it .jsonl",
                file.string());
  std::vector<Prompt> prompts;
  for (const TextLine& line : lines) {
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
      fail(ExitCode::bad_input, "{}: a record {}", line.location, error.what());
    }
  }
  require_input(!prompts.empty(), "{} has no prompts", file.string());
  return prompts;
}

}  // namespace lyceum
