#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/tokenizer.h"

namespace lyceum {

/// How the messages of a chat become one document: begin, then before + text + after of each message.
struct ChatTemplate {
  struct Role {
    std::string_view name, before, after;
  };
  std::string_view name;
  std::vector<std::string_view> tokens{};  // that a tokenizer must have
  std::string_view begin;
  std::vector<Role> roles{};
  std::string_view answer_end;  // behind the assistant's text and trained with it
  bool ends_text = false;       // the end-of-text token is there instead
};

/// chatml, llama3, deepseek (DeepSeekMoE's), plain.
std::span<const ChatTemplate> chat_templates();
/// Throws a usage Error that lists the names for one that is none of them.
const ChatTemplate& chat_template(std::string_view name);
/// Throws a bad_input Error that names a token of the template that the tokenizer splits up.
void require_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& tokenizer_name);

/// A stretch of a document that is encoded by itself.
struct ChatPart {
  std::string text{};
  bool trained = false;
  bool ends_text = false;  // the end-of-text token follows it, trained as well
};
/// The document of a record, a line of JSON: {"messages": [{"role": …, "content": …}, …]} or {"prompt": …,
/// "completion": …}, texts both. What the assistant says is trained, with the token that ends it. Throws a bad_input
/// Error that says in a few words what is wrong with it, as in Skipped.
std::vector<ChatPart> parts_of_chat(std::string_view line, const ChatTemplate& chat);

}  // namespace lyceum
