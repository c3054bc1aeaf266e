#include "io/data/records/prompts.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "core/error.h"
#include "io/data/records/json_lines.h"
#include "io/data/records/json_record.h"
#include "io/data/records/record_formats.h"
#include "io/files/text_stream.h"
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

std::string uncompressed(const std::filesystem::path& file) {
  constexpr std::size_t at_a_time = std::size_t{1} << 16;
  TextStream stream(file);
  std::string text;
  for (std::size_t size = 0;; size = text.size()) {
    text.resize(size + at_a_time);
    text.resize(size + stream.read(std::span(text).subspan(size)));
    if (text.size() == size) return text;
  }
}

}  // namespace

Prompt chat_prompt(std::string_view system, std::string_view text) {
  Prompt prompt;
  if (!system.empty()) prompt.messages.push_back({.role = "system", .text = replace_invalid_utf8(system)});
  prompt.messages.push_back({.role = "user", .text = replace_invalid_utf8(text)});
  return prompt;
}

std::vector<Prompt> read_prompts(const std::filesystem::path& file, bool chat, std::string_view system) {
  const std::string text = uncompressed(file);
  require_input(is_utf8(text), "{} is not UTF-8 text", file.string());
  const bool records = &format_by_name(file) == &json_lines;
  std::vector<Prompt> prompts;
  std::string_view rest = text;
  if (rest.starts_with(byte_order_mark)) rest.remove_prefix(byte_order_mark.size());
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      if (records) {
        prompts.push_back(prompt_of_record(line, chat, system));
      } else if (chat) {
        prompts.push_back(chat_prompt(system, line));
      } else {
        prompts.push_back({.text = std::string(line)});
      }
      prompts.back().location = file.string() + ":" + std::to_string(number);
    } catch (const Error& error) {
      const std::string_view problem = error.what();
      if (problem == "empty") {
        fail(ExitCode::bad_input, "{}:{}: the record has an empty \"prompt\"", file.string(), number);
      }
      fail(ExitCode::bad_input, "{}:{}: a record {}", file.string(), number, problem);
    }
  }
  require_input(!prompts.empty(), "{} has no prompts", file.string());
  return prompts;
}

}  // namespace lyceum
