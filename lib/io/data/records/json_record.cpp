#include "io/data/records/json_record.h"

#include <nlohmann/json.hpp>

#include <utility>

#include "core/error.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {

nlohmann::json parse_record(std::string_view line) {
  constexpr int deepest = 1000;  // levels; Python's json has about the same limit
  require_shallow(line, deepest);
  nlohmann::json record = parse_as_python(line);
  require_input(!record.is_discarded(), "not JSON");
  return record;
}

void require_text(const nlohmann::json& value, std::string_view key) {
  require_input(value.is_string(), "whose \"{}\" is not a string", key);
  const auto& text = value.get_ref<const std::string&>();
  std::size_t at = 0;  // offset of the first byte that is not part of a valid character
  for (std::size_t length = 1; length > 0; at += length) length = utf8_length(text, at);
  if (at == text.size()) return;
  const bool surrogate =
      text.size() - at >= 3 && text[at] == '\xED' && static_cast<unsigned char>(text[at + 1]) >= 0xA0;
  require_input(!surrogate, "whose \"{}\" has half of a surrogate pair", key);
  fail(ExitCode::bad_input, "whose \"{}\" is not UTF-8", key);
}

std::string text_of_record(std::string_view line, const std::string& key) {
  nlohmann::json record = parse_record(line);
  require_input(record.is_object() && record.contains(key), "without \"{}\"", key);
  nlohmann::json& text = record[key];
  require_text(text, key);
  return std::move(text.get_ref<std::string&>());
}

}  // namespace lyceum
