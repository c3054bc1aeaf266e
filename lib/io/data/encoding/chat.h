#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/records/chat_record.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/text/text_range.h"

namespace lyceum {

/// The format in which the messages of a chat become one document: `begin`, followed by each message.
struct ChatTemplate {
  /// A message is formatted as before + (lead + text + end) + after. The part in parentheses is trained if the message
  /// is.
  struct Role {
    std::string_view name, before, lead, end, after;
  };
  std::string_view name;
  std::vector<std::string_view> tokens{};  // tokens that the tokenizer must have
  std::string_view begin;
  std::vector<Role> roles{};
  bool trims = false;      // whitespace at both ends of texts is removed
  bool ends_text = false;  // the end-of-text token follows the assistant's `end`, and is trained if the message is
  std::string_view jinja;  // the same template in Jinja, for transformers; its `eos_token` is the end-of-text token

  /// Returns the role of this name. Throws a bad_input Error, whose message is a reason for Skipped, if the template
  /// does not have it.
  const Role& role(const std::string& name) const;
  /// Returns the text of the token that ends an answer; empty if that is the end-of-text token.
  std::string_view answer_end() const { return role(std::string(assistant_role)).end; }
};

/// Returns all templates: chatml, llama3, deepseek (DeepSeekMoE's), plain.
std::span<const ChatTemplate> chat_templates();
/// Returns the template of this name. Throws a usage Error that lists the names if there is none.
const ChatTemplate& chat_template(std::string_view name);
/// Throws a bad_input Error if the tokenizer does not encode each of the template's tokens as one token.
/// `tokenizer_name` is for the message.
void require_template_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& tokenizer_name);

/// A part of a chat's document. Only end-of-text tokens are between the parts.
struct ChatSegment {
  std::string text{};
  std::vector<TextRange> trained{};  // the trained ranges of the text; sorted, disjoint
  bool ends_text = false;            // an end-of-text token follows the text
  bool end_trained = false;          // that token is trained
};
/// Formats a chat as a document. Throws the error of ChatTemplate::role() if the template does not have a message's
/// role.
std::vector<ChatSegment> rendered(std::span<const ChatMessage> messages, const ChatTemplate& chat);
/// Formats a chat as a prompt: the document, followed by the beginning of a message of the assistant. Throws as
/// rendered() does.
std::vector<ChatSegment> render_prompt(std::span<const ChatMessage> messages, const ChatTemplate& chat);

/// Appends the tokens of a document to `tokens`, and for each of them 1 (trained) or 0 to `trained`.
void encode_chat(std::span<const ChatSegment> segments, const Tokenizer& tokenizer, TextEncoder& encoder,
                 std::vector<std::int32_t>& tokens, std::vector<std::uint8_t>& trained);

/// Returns the tokens at which generation ends, without duplicates:
/// 1. the token that ends an answer in the template `chat` (data.chat), unless `chat` is `auto` or the tokenizer lacks
///    that token;
/// 2. the tokens `more` (data.end_tokens), which must be at least 0;
/// 3. the end-of-text token.
/// Throws a usage Error if there is no such template, or if one of `more` is not in the vocabulary.
std::vector<std::int32_t> end_tokens(const std::string& chat, std::span<const std::int64_t> more,
                                     const Tokenizer& tokenizer);
/// Returns the chat templates that the token files of data.train (`train`) name. Files that do not exist have none.
std::set<std::string> chat_templates(const std::string& train);
/// Returns the name of the chat template of a run: data.chat (`chat`) unless it is `auto`, else the template of the
/// token files of data.train (`train`), or `auto` if they have none. Throws a usage Error if some files have chats but
/// none has the template data.chat, or if data.chat is `auto` and files have different templates.
std::string chat_template_of_run(const std::string& chat, const std::string& train);

}  // namespace lyceum
