#include "io/data/records.h"

#include <nlohmann/json.hpp>

#include <utility>

#include "core/error.h"
#include "io/text/json.h"

namespace lyceum {

nlohmann::json parsed_record(std::string_view line) {
  require_shallow(line);
  nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
  require_input(!record.is_discarded(), "not JSON");
  return record;
}

std::string text_of_record(std::string_view line, const std::string& key) {
  nlohmann::json record = parsed_record(line);
  require_input(record.is_object() && record.contains(key), "without \"{}\"", key);
  nlohmann::json& text = record[key];
  require_input(text.is_string(), "whose \"{}\" is not a string", key);
  require_input(!text.get_ref<const std::string&>().empty(), "empty");
  return std::move(text.get_ref<std::string&>());
}

}  // namespace lyceum
