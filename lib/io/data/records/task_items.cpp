#include "io/data/records/task_items.h"

#include <nlohmann/json.hpp>

#include <string_view>

#include "core/error.h"
#include "io/data/records/json_record.h"
#include "io/data/records/text_lines.h"
#include "io/text/json.h"

namespace lyceum {

namespace {

/// Parses a record. Throws a bad_input Error whose message completes "a record …".
TaskItem item_of(std::string_view line) {
  const nlohmann::json record = parse_record(line);
  for (const char* key : {"context", "choices", "answer"}) {
    require_input(record.is_object() && record.contains(key), "without \"{}\"", key);
  }
  TaskItem item;
  require_text(record["context"], "context");
  item.context = record["context"];
  const nlohmann::json &choices = record["choices"], &answer = record["answer"];
  require_input(choices.is_array() && choices.size() >= 2, "whose \"choices\" is not a list of at least two texts");
  for (const nlohmann::json& choice : choices) {
    require_text(choice, "choices");
    item.choices.push_back(choice);
    require_input(!item.choices.back().empty(), "with an empty text in its \"choices\"");
  }
  const auto count = static_cast<std::int64_t>(choices.size());
  require_input(answer.is_number_integer() && answer >= 0 && answer < count,
                "whose \"answer\" is not the index of a choice: a number from 0 to {}", count - 1);
  item.answer = exact_value<std::int64_t>(answer);
  return item;
}

}  // namespace

std::vector<TaskItem> read_task(const std::filesystem::path& file) {
  std::vector<TaskItem> items;
  for (const TextLine& line : read_text_lines(file)) {
    try {
      items.push_back(item_of(line.text));
    } catch (const Error& error) {
      fail(ExitCode::bad_input, "{}: a record {}", line.location, error.what());
    }
    items.back().location = line.location;
    items.back().line = line.number;
  }
  require_input(!items.empty(), "{} has no items", file.string());
  return items;
}

}  // namespace lyceum
