#include "io/data/encoding/chat.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "io/data/tokenizer/unicode.h"
#include "io/data/tokens/data_sources.h"
#include "io/data/tokens/token_meta.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// True for whitespace as in Python's str.strip(), which Jinja's filter `trim` calls.
bool is_stripped(char32_t c) { return is_whitespace(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view trimmed_text(std::string_view text) {
  std::size_t begin = 0, end = 0;  // of the remaining text
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = at + std::max<std::size_t>(1, utf8_length(text, at));
    if (!is_stripped(character_at(text, at))) {
      if (end == 0) begin = at;
      end = next;
    }
    at = next;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

std::span<const ChatTemplate> chat_templates() {
  static const std::vector<ChatTemplate> all{
      {.name = "chatml",
       .tokens = {"<|im_start|>", "<|im_end|>"},
       .begin = "",
       .roles = {{"system", "<|im_start|>system\n", "", "<|im_end|>", "\n"},
                 {"user", "<|im_start|>user\n", "", "<|im_end|>", "\n"},
                 {assistant_role, "<|im_start|>assistant\n", "", "<|im_end|>", "\n"}},
       .jinja = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                "{% endif %}"},
      {.name = "llama3",
       .tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
       .begin = "<|begin_of_text|>",
       .roles = {{"system", "<|start_header_id|>system<|end_header_id|>\n\n", "", "<|eot_id|>", ""},
                 {"user", "<|start_header_id|>user<|end_header_id|>\n\n", "", "<|eot_id|>", ""},
                 {assistant_role, "<|start_header_id|>assistant<|end_header_id|>\n\n", "", "<|eot_id|>", ""}},
       .trims = true,
       .jinja = "{{ '<|begin_of_text|>' }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
                "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
      {.name = "deepseek",
       .tokens = {"<｜begin▁of▁sentence｜>"},
       .begin = "<｜begin▁of▁sentence｜>",
       .roles = {{"system", "", "", "", "\n\n"},
                 {"user", "User:", " ", "", "\n\n"},
                 {assistant_role, "Assistant:", " ", "", ""}},
       .ends_text = true,
       .jinja = "{{ '<｜begin▁of▁sentence｜>' }}{% for message in messages %}{% if message['role'] == 'user' %}"
                "{{ 'User: ' + message['content'] + '\\n\\n' }}{% elif message['role'] == 'assistant' %}"
                "{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}"
                "{{ message['content'] + '\\n\\n' }}{% endif %}{% endfor %}"
                "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"},
      {.name = "plain",
       .tokens = {},
       .begin = "",
       .roles = {{"system", "", "", "", "\n"}, {"user", "", "", "", "\n"}, {assistant_role, "", "", "", ""}},
       .ends_text = true,
       .jinja =
           "{% for message in messages %}{% if message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
           "{% else %}{{ message['content'] + '\\n' }}{% endif %}{% endfor %}"},
  };
  return all;
}

const ChatTemplate& chat_template(std::string_view name) {
  const auto found = std::ranges::find(chat_templates(), name, &ChatTemplate::name);
  std::string names;
  for (const ChatTemplate& one : chat_templates()) names.append(names.empty() ? "" : ", ").append(one.name);
  require_usage(found != chat_templates().end(), "--chat {} is not one of {}", excerpt(name), names);
  return *found;
}

const ChatTemplate::Role& ChatTemplate::role(const std::string& wanted) const {
  const auto found = std::ranges::find(roles, wanted, &Role::name);
  // The message omits the role's name, so that Skipped counts all such records under one reason
  require_input(found != roles.end(), "with a role that is not system, user or assistant");
  return *found;
}

void require_template_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& tokenizer_name) {
  TextEncoder encoder(tokenizer);
  for (const std::string_view token : chat.tokens) {
    const std::optional<std::int32_t> id = tokenizer.token(token);
    std::vector<std::int32_t> tokens;
    std::vector<std::uint8_t> marks;
    // begins = false: SentencePiece adds no space in front
    encoder.encode({.text = token}, {.begins = false}, tokens, marks);
    require_input(id && tokens == std::vector{*id},
                  "{} has no token {}, which the chat template {} needs: use another template, or add the token",
                  tokenizer_name, token, chat.name);
  }
}

std::vector<ChatSegment> rendered(std::span<const ChatMessage> messages, const ChatTemplate& chat) {
  std::vector<ChatSegment> segments(1);
  segments.back().text = chat.begin;
  for (const ChatMessage& message : messages) {
    const ChatTemplate::Role& role = chat.role(message.role);
    std::string& text = segments.back().text;
    text += role.before;
    const std::size_t begin = text.size();
    text.append(role.lead).append(chat.trims ? trimmed_text(message.text) : message.text).append(role.end);
    if (message.trained && begin < text.size()) segments.back().trained.push_back({begin, text.size()});
    if (chat.ends_text && message.role == assistant_role) {
      segments.back().ends_text = true;
      segments.back().end_trained = message.trained;
      segments.emplace_back();
    }
    segments.back().text += role.after;
  }
  if (segments.back().text.empty()) segments.pop_back();
  return segments;
}

std::vector<ChatSegment> render_prompt(std::span<const ChatMessage> messages, const ChatTemplate& chat) {
  std::vector<ChatSegment> segments = rendered(messages, chat);
  if (segments.empty() || segments.back().ends_text) segments.emplace_back();
  segments.back().text += chat.role(std::string(assistant_role)).before;
  return segments;
}

void encode_chat(std::span<const ChatSegment> segments, const Tokenizer& tokenizer, TextEncoder& encoder,
                 std::vector<std::int32_t>& tokens, std::vector<std::uint8_t>& trained) {
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const auto& [text, ranges, ends_text, end_trained] = segments[i];
    // SentencePiece adds a space only at the beginning of a document, `tokenizers` also after each added token.
    encoder.encode({.text = text, .marked = ranges}, {.begins = i == 0}, tokens, trained);
    if (!ends_text) continue;
    tokens.push_back(tokenizer.end_of_document());
    trained.push_back(end_trained ? 1 : 0);
  }
}

std::vector<std::int32_t> end_tokens(const std::string& chat, std::span<const std::int64_t> more,
                                     const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ends;
  const auto add = [&](std::int32_t token) {
    if (std::ranges::find(ends, token) == ends.end()) ends.push_back(token);
  };
  if (chat != "auto") {
    const std::string_view name = chat_template(chat).answer_end();
    if (const std::optional<std::int32_t> token = name.empty() ? std::nullopt : tokenizer.token(name)) add(*token);
  }
  for (const std::int64_t token : more) {
    require_usage(token < tokenizer.vocab(), "data.end_tokens = {}: the tokenizer has only {} tokens, counted from 0",
                  token, tokenizer.vocab());
    add(static_cast<std::int32_t>(token));
  }
  add(tokenizer.end_of_document());
  return ends;
}

std::set<std::string> chat_templates(const std::string& train) {
  std::set<std::string> templates;
  for (const auto& [prefix, weight] : data_sources("data.train", train)) {
    const std::optional<TokenMeta> meta = read_token_meta(prefix);
    if (meta && !meta->chat.empty()) templates.insert(meta->chat);
  }
  return templates;
}

std::string chat_template_of_run(const std::string& chat, const std::string& train) {
  std::string found, first;  // the template, and the prefix of the first files with it
  for (const auto& [prefix, weight] : data_sources("data.train", train)) {
    const std::optional<TokenMeta> meta = read_token_meta(prefix);
    if (!meta || meta->chat.empty()) continue;
    if (chat != "auto" && chat == meta->chat) return chat;
    require_usage(chat != "auto" || found.empty() || found == meta->chat,
                  "the chats of {} are in the format {}, those of {} in {}: set data.chat to the one that the "
                  "model should use",
                  first, found, prefix, meta->chat);
    found = meta->chat;
    first = prefix;
  }
  require_usage(chat == "auto" || found.empty(),
                "data.chat = {}, but the chats of {} are in the format {}: set data.chat = {}", chat, first, found,
                found);
  return found.empty() ? chat : found;
}

}  // namespace lyceum
