#include "io/data/chat.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "io/data/records.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

constexpr std::string_view answering = "assistant";

const nlohmann::json& text_of(const nlohmann::json& object, const char* key) {
  require_input(object.is_object() && object.contains(key) && object.at(key).is_string(), "without a text \"{}\"", key);
  require_text(object.at(key), key);
  return object.at(key);
}

/// Role and text.
std::vector<std::pair<std::string, std::string>> messages_of(const nlohmann::json& record) {
  std::vector<std::pair<std::string, std::string>> messages;
  if (record.is_object() && record.contains("messages")) {
    require_input(record.at("messages").is_array(), "whose \"messages\" is not a list");
    for (const nlohmann::json& message : record.at("messages")) {
      std::string role = text_of(message, "role");  // first, so that what lacks both is named by it
      messages.emplace_back(std::move(role), text_of(message, "content"));
    }
  } else {
    require_input(record.is_object() && record.contains("prompt"), "without \"messages\" or \"prompt\"");
    messages = {{"user", text_of(record, "prompt")}, {std::string(answering), text_of(record, "completion")}};
  }
  const auto answers = [](const auto& message) { return message.first == answering && !message.second.empty(); };
  require_input(std::ranges::any_of(messages, answers), "without an answer of the assistant");
  return messages;
}

}  // namespace

std::span<const ChatTemplate> chat_templates() {
  static const std::vector<ChatTemplate> all{
      {.name = "chatml",
       .tokens = {"<|im_start|>", "<|im_end|>"},
       .begin = "",
       .roles = {{"system", "<|im_start|>system\n", "<|im_end|>\n"},
                 {"user", "<|im_start|>user\n", "<|im_end|>\n"},
                 {answering, "<|im_start|>assistant\n", "\n"}},
       .answer_end = "<|im_end|>"},
      {.name = "llama3",
       .tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
       .begin = "<|begin_of_text|>",
       .roles = {{"system", "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
                 {"user", "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
                 {answering, "<|start_header_id|>assistant<|end_header_id|>\n\n", ""}},
       .answer_end = "<|eot_id|>"},
      {.name = "deepseek",
       .tokens = {"<｜begin▁of▁sentence｜>"},
       .begin = "<｜begin▁of▁sentence｜>",
       .roles = {{"system", "", "\n\n"}, {"user", "User: ", "\n\n"}, {answering, "Assistant: ", ""}},
       .answer_end = "",
       .ends_text = true},
      {.name = "plain",
       .tokens = {},
       .begin = "",
       .roles = {{"system", "", "\n"}, {"user", "", "\n"}, {answering, "", ""}},
       .answer_end = "",
       .ends_text = true},
  };
  return all;
}

const ChatTemplate& chat_template(std::string_view name) {
  const auto found = std::ranges::find(chat_templates(), name, &ChatTemplate::name);
  std::string names;
  for (const ChatTemplate& one : chat_templates()) names.append(names.empty() ? "" : ", ").append(one.name);
  require_usage(found != chat_templates().end(), "--chat {} is not one of {}", name, names);
  return *found;
}

void require_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& tokenizer_name) {
  for (const std::string_view token : chat.tokens) {
    require_input(tokenizer.encode(token).size() == 1,
                  "{} has no token {}, which the chat template {} needs: use another template, or add the token",
                  tokenizer_name, token, chat.name);
  }
}

std::vector<ChatPart> parts_of_chat(std::string_view line, const ChatTemplate& chat) {
  const auto messages = messages_of(parsed_record(line));
  std::vector<ChatPart> parts;
  std::string between(chat.begin);  // what is not trained, up to the next answer
  for (const auto& [name, text] : messages) {
    const auto role = std::ranges::find(chat.roles, name, &ChatTemplate::Role::name);
    require_input(role != chat.roles.end(), "with the role \"{}\"", excerpt(name, 20));
    between += role->before;
    if (name == answering) {
      parts.push_back({.text = std::exchange(between, "")});
      parts.push_back({.text = text + std::string(chat.answer_end), .trained = true, .ends_text = chat.ends_text});
    } else {
      between += text;
    }
    between += role->after;
  }
  parts.push_back({.text = between});
  std::erase_if(parts, [](const ChatPart& part) { return part.text.empty() && !part.ends_text; });
  return parts;
}

}  // namespace lyceum
