#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace lyceum {

/// Parses a line with parse_as_python(). Strings of the result may not be valid UTF-8, see require_text(). The
/// functions of this header throw a bad_input Error whose message either completes "a record …" or is a reason for
/// Skipped: "not JSON", "without \"text\"".
nlohmann::json parse_record(std::string_view line);

/// Throws unless `value`, which the record has under `key`, is a string of valid UTF-8.
void require_text(const nlohmann::json& value, std::string_view key);

/// Returns the text under `key` of a record, which may be empty. Throws if there is none.
std::string text_of_record(std::string_view line, const std::string& key);

}  // namespace lyceum
