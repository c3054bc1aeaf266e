#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/records/chat_record.h"

namespace lyceum {

/// A text that a model continues, or a chat that it answers.
struct Prompt {
  std::string text{};                   // if it is no chat
  std::vector<ChatMessage> messages{};  // of a chat
  std::string place{};                  // FILE:LINE; empty if it is not of a file
};

/// Returns the chat of a user's text, after a system's unless that is empty; bytes that are not UTF-8 become U+FFFD.
Prompt chat_prompt(std::string_view system, std::string_view text);

/// Returns the prompts of a UTF-8 file, which may be compressed and begin with a byte order mark: one per line, or, in
/// files that have json_lines by name, one record per line, {"prompt": …} or with `chat` {"messages": […]} too. Blank
/// lines are skipped. `system` is for chats that have no system text.
/// Throws a bad_input Error that names the line and what is wrong with it.
std::vector<Prompt> read_prompts(const std::filesystem::path& file, bool chat, std::string_view system);

}  // namespace lyceum
