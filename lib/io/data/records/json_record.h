#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace lyceum {

/// Parses a line as Python's json does; its strings may be no valid text, see require_text(). These functions throw a
/// bad_input Error whose message continues "a record …" or is a reason for Skipped: "not JSON", "without \"text\"".
nlohmann::json parsed_record(std::string_view line);

/// Throws unless the value under `key` is a string of valid UTF-8.
void require_text(const nlohmann::json& value, std::string_view key);

/// The text of a record under `key`, which is not empty.
std::string text_of_record(std::string_view line, const std::string& key);

}  // namespace lyceum
