#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// A message of a chat.
struct ChatMessage {
  /// "system", "user" or "assistant" for the chat templates; other roles are read, too.
  std::string role{}, text{};
  /// True if the predictions of the message's tokens count in the loss.
  bool trained = false;
  bool operator==(const ChatMessage&) const = default;
};

/// The role whose messages are trained unless marks of the record state otherwise.
constexpr std::string_view assistant_role = "assistant";

/// Returns the messages of a chat record. `line` is JSON: {"messages": [{"role": …, "content": …}, …]}, or {"prompt":
/// …, "completion": …}, of which each is a text or a list of messages. Either may have a "system" text. A mark of a
/// message, such as "weight": 0 or "masked": true, determines whether the message is trained.
///
/// Throws a bad_input Error that describes the problem in a few words, as in Skipped. It also rejects
/// - a record without an answer of the assistant, or of which no message is trained;
/// - fields that would change the text of the document but that no chat template supports, such as "tool_calls".
std::vector<ChatMessage> messages_of_chat(std::string_view line);
/// Returns the messages of a record that asks for an answer: `messages`, or a `prompt` without a `completion`. Throws a
/// bad_input Error as above, also if the last message is the assistant's.
std::vector<ChatMessage> messages_of_prompt(std::string_view line);

}  // namespace lyceum
