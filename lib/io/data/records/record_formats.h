#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/data/records/record_source.h"

namespace lyceum {

/// Returns the format that a file has by the ending of its name, in upper or lower case, which one of a compression may
/// follow; plain_text for other endings.
const RecordFormat& format_by_name(const std::filesystem::path& file);
/// Returns the format of a file that begins like this, uncompressed; null if no format that can be read does.
const RecordFormat* format_by_beginning(std::string_view beginning);
/// Returns what a file is that begins like this and cannot be read, and what to do about it: "ORC, to be converted …".
/// Empty if the beginning is of no known format.
std::string foreign_format(std::string_view beginning);

}  // namespace lyceum
