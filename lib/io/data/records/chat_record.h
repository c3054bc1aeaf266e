#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// A message of a chat.
struct ChatMessage {
  std::string role{}, text{};
  bool trained = false;
  bool operator==(const ChatMessage&) const = default;
};

/// The role whose messages are trained unless marks say otherwise.
constexpr std::string_view assistant_role = "assistant";

/// Returns the messages of a record, a line of JSON: {"messages": [{"role": …, "content": …}, …]} or {"prompt": …,
/// "completion": …}, both texts or both lists of messages, with or without a "system" text. A mark of a message, such
/// as "weight": 0 or "masked": true, decides whether it is trained. Throws a bad_input Error that says in a few words
/// what is wrong with it, as in Skipped; also for what would change the text and has no place in a chat template.
std::vector<ChatMessage> messages_of_chat(std::string_view line);
/// Returns the messages of a record that asks for an answer: `messages`, or a `prompt` without a `completion`.
std::vector<ChatMessage> messages_of_prompt(std::string_view line);

}  // namespace lyceum
