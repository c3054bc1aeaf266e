#include "io/data/records/chat_record.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "core/error.h"
#include "io/data/records/json_record.h"

namespace lyceum {

namespace {

using nlohmann::json;

/// A key that marks a message as trained or not, and the value that means trained.
struct Mark {
  const char* key;
  bool trains;
};
/// The marks of messages, as named by programs for fine-tuning: `weight` by OpenAI and Mistral, `train`, `training` and
/// `train_on_turn` by axolotl, `loss` by ms-swift and XTuner, `loss_mask` by VeOmni, `masked` by torchtune.
constexpr std::array marks = std::to_array<Mark>({{"weight", true},
                                                  {"train", true},
                                                  {"training", true},
                                                  {"trainable", true},
                                                  {"train_on_turn", true},
                                                  {"loss", true},
                                                  {"loss_mask", true},
                                                  {"loss_weight", true},
                                                  {"loss_scale", true},
                                                  {"masked", false}});
/// The marks of whole records. `loss` is not one of them, since it is more often a measured number.
constexpr std::array marks_of_records = std::to_array<Mark>(
    {{"weight", true}, {"train", true}, {"training", true}, {"loss_mask", true}, {"masked", false}});

/// Keys that would change the text of a message or its marks, but that no chat template supports.
constexpr std::array unread_in_messages{
    "tool_calls", "function_call", "reasoning_content", "reasoning",    "thinking", "refusal",
    "audio",      "images",        "training_detail",   "train_detail", "mask"};
constexpr std::array unread_in_records{"tools",  "functions",       "documents",       "images", "videos",
                                       "audios", "assistant_masks", "completion_mask", "mask"};

/// True for null, false, and an empty text, list or object.
bool is_nothing(const json& value) {
  return value.is_null() || value == false || (value.is_string() && value == "") ||
         (value.is_structured() && value.empty());
}

template <std::size_t n>
void require_read(const json& object, const std::array<const char*, n>& unread) {
  for (const char* key : unread) {
    const auto found = object.find(key);
    require_input(found == object.end() || is_nothing(*found), "with \"{}\", which no supported chat template has",
                  key);
  }
}

/// Returns true if the marks of an object mark it as trained, false if they mark it as not trained, nothing if it has
/// no mark. Throws if marks have other values or contradict each other.
std::optional<bool> trained_by_marks(const json& object, std::span<const Mark> known) {
  std::optional<bool> trained;
  for (const auto& [key, trains] : known) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;
    const bool set = *found == true || (found->is_number() && *found == 1);
    require_input(set || *found == false || (found->is_number() && *found == 0), "whose \"{}\" is neither 0 nor 1",
                  key);
    require_input(trained.value_or(set == trains) == (set == trains), "with marks that contradict each other");
    trained = set == trains;
  }
  return trained;
}

const std::string& text_of(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  require_input(found != object.end() && found->is_string(), "without a text \"{}\"", key);
  require_text(*found, key);
  return found->get_ref<const std::string&>();
}

/// Returns the text of "content", which is a text, or a list with a single part that is a text.
const std::string& content_of(const json& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return text_of(message, "content");
  require_input(content->size() == 1, "whose \"content\" has {} parts, which templates join differently",
                content->size());
  const json& part = content->front();
  require_input(part.is_object() && part.value("type", json()) == "text", "whose \"content\" is not a text");
  return text_of(part, "text");
}

ChatMessage message_of(const json& message) {
  // First, so that the error for a value without any of the keys names "role".
  ChatMessage read{.role = text_of(message, "role")};
  require_read(message, unread_in_messages);
  read.text = content_of(message);
  read.trained = trained_by_marks(message, marks).value_or(read.role == assistant_role);
  return read;
}

std::vector<ChatMessage> messages_in(const json& list) {
  std::vector<ChatMessage> messages;
  std::ranges::transform(list, std::back_inserter(messages), message_of);
  return messages;
}

/// Returns the messages of `prompt`, of which only those with a mark are trained.
std::vector<ChatMessage> prompt_of(const json& record) {
  const json& prompt = record.at("prompt");
  if (!prompt.is_array()) return {{.role = "user", .text = text_of(record, "prompt")}};
  std::vector<ChatMessage> messages = messages_in(prompt);
  for (std::size_t i = 0; i < messages.size(); ++i)
    messages[i].trained = trained_by_marks(prompt[i], marks).value_or(false);
  return messages;
}

std::vector<ChatMessage> completion_of(const json& record) {
  const auto completion = record.find("completion");
  if (completion != record.end() && completion->is_array()) return messages_in(*completion);
  return {{.role = std::string(assistant_role), .text = text_of(record, "completion"), .trained = true}};
}

/// `asks`: the record asks for an answer, so a `prompt` needs no `completion`.
std::vector<ChatMessage> messages_of(const json& record, bool asks) {
  const bool has_messages = record.is_object() && record.contains("messages");
  require_input(has_messages || (record.is_object() && record.contains("prompt")),
                "without \"messages\" or \"prompt\"");
  require_read(record, unread_in_records);
  std::vector<ChatMessage> messages;
  if (has_messages) {
    require_input(record.at("messages").is_array(), "whose \"messages\" is not a list");
    messages = messages_in(record.at("messages"));
  } else {
    messages = prompt_of(record);
    if (!asks || record.contains("completion")) std::ranges::move(completion_of(record), std::back_inserter(messages));
  }
  if (record.contains("system") && !is_nothing(record.at("system"))) {
    require_input(messages.empty() || messages.front().role != "system", "with two system texts");
    messages.insert(messages.begin(), {.role = "system", .text = text_of(record, "system")});
  }
  return messages;
}

}  // namespace

std::vector<ChatMessage> messages_of_chat(std::string_view line) {
  const json record = parse_record(line);
  std::vector<ChatMessage> messages = messages_of(record, false);
  const auto answers = [](const ChatMessage& each) { return each.role == assistant_role && !each.text.empty(); };
  require_input(std::ranges::any_of(messages, answers), "without an answer of the assistant");
  const bool left_out = !trained_by_marks(record, marks_of_records).value_or(true);
  const auto trains = [](const ChatMessage& each) { return each.trained && !each.text.empty(); };
  require_input(!left_out && std::ranges::any_of(messages, trains), "of which no message is trained");
  return messages;
}

std::vector<ChatMessage> messages_of_prompt(std::string_view line) {
  std::vector<ChatMessage> messages = messages_of(parse_record(line), true);
  require_input(!messages.empty() && messages.back().role != assistant_role,
                "which does not end with a message that asks for an answer");
  return messages;
}

}  // namespace lyceum
