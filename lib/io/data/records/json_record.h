#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace lyceum {

/// A line of JSON, as Python's json reads it: strings may be no text, see require_text(). This and the next throw a
/// bad_input Error that says in a few words what is wrong with it, as Skipped tells it.
nlohmann::json parsed_record(std::string_view line);

/// Throws unless the value under `key` is a string of valid UTF-8.
void require_text(const nlohmann::json& value, std::string_view key);

/// The text of a record under `key`, which is not empty.
std::string text_of_record(std::string_view line, const std::string& key);

}  // namespace lyceum
