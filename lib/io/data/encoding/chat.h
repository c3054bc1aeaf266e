#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/records/chat_record.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/text/text_range.h"

namespace lyceum {

/// How the messages of a chat become one document: `begin`, then each message.
struct ChatTemplate {
  /// before + (lead + text + end) + after; what is in parentheses is trained if the message is.
  struct Role {
    std::string_view name, before, lead, end, after;
  };
  std::string_view name;
  std::vector<std::string_view> tokens{};  // that a tokenizer must have
  std::string_view begin;
  std::vector<Role> roles{};
  bool trims = false;      // texts lose the whitespace at both ends
  bool ends_text = false;  // the end-of-text token follows the assistant's `end` and is trained with it
  std::string_view jinja;  // the same for transformers, where `eos_token` is the end-of-text token

  /// Throws a bad_input Error for a role that the template has not.
  const Role& role(const std::string& name) const;
  /// The token that ends an answer; empty if it is the end-of-text token.
  std::string_view answer_end() const { return role(std::string(assistant_role)).end; }
};

/// chatml, llama3, deepseek (DeepSeekMoE's), plain.
std::span<const ChatTemplate> chat_templates();
/// Throws a usage Error that lists the names for one that is none of them.
const ChatTemplate& chat_template(std::string_view name);
/// Throws a bad_input Error that names a token of the template that the tokenizer splits up.
void require_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& tokenizer_name);

/// A stretch of a document that is encoded as a whole.
struct ChatStretch {
  std::string text{};
  std::vector<TextRange> trained{};  // sorted, disjoint
  bool ends_text = false;            // the end-of-text token follows it
  bool end_trained = false;          // and is trained
};
/// Returns the document of a chat. Throws a bad_input Error for a role that the template has not.
std::vector<ChatStretch> rendered(std::span<const ChatMessage> messages, const ChatTemplate& chat);
/// Returns the document of a chat up to where the assistant answers.
std::vector<ChatStretch> rendered_prompt(std::span<const ChatMessage> messages, const ChatTemplate& chat);

/// Appends the tokens of a document, and for each 1 if it is trained, else 0.
void encode_chat(std::span<const ChatStretch> stretches, const Tokenizer& tokenizer, TextEncoder& encoder,
                 std::vector<std::int32_t>& tokens, std::vector<std::uint8_t>& trained);

/// Returns the tokens that end a generated text, without doubles: the one that ends an answer in data.chat
/// (`chat`), data.end_tokens (`more`), and the end-of-text token. Throws a usage Error for one beyond the vocabulary.
std::vector<std::int32_t> end_tokens(const std::string& chat, std::span<const std::int64_t> more,
                                     const Tokenizer& tokenizer);
/// Returns the chat template of a run: data.chat (`chat`), or that of the files of data.train (`train`) if that is
/// `auto`; `auto` if they have none. Throws a usage Error if the two differ, or the files among themselves.
std::string chat_of_run(const std::string& chat, const std::string& train);

}  // namespace lyceum
