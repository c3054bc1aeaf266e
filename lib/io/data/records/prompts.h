#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/records/chat_record.h"

namespace lyceum {

/// A text that a model continues, or a chat that it answers.
struct Prompt {
  std::string text{};                   // empty if it is a chat
  std::vector<ChatMessage> messages{};  // empty if it is not a chat
  std::string location{};               // "FILE:LINE", for messages; empty if it is not from a file
};

/// Returns a chat that consists of a user's text, preceded by the system text `system` unless that is empty. Replaces
/// bytes that are not UTF-8 by U+FFFD.
Prompt chat_prompt(std::string_view system, std::string_view text);

/// Reads the prompts of a UTF-8 file, which may be compressed and begin with a byte order mark. If its name has an
/// ending of json_lines, each line is a record: {"prompt": …}, also with an empty text, or, if `chat` is true, also
/// {"messages": […]}. Otherwise
/// each line is a prompt. Blank lines are skipped. `system` is the system text of chats that have none. Throws a
/// bad_input Error that names the line and the problem, if the file has no prompts, or if its lines would be prompts
/// although it ends in .json, begins with a line that is a JSON object, or is a JSON array of objects.
std::vector<Prompt> read_prompts(const std::filesystem::path& file, bool chat, std::string_view system);

}  // namespace lyceum
