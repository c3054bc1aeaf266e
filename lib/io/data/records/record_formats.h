#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/data/records/record_source.h"

namespace lyceum {

/// Returns the format that the ending of a file's name determines, in upper or lower case and before the ending of a
/// compression ("a.JSONL.gz"); plain_text for unknown endings.
const RecordFormat& format_by_name(const std::filesystem::path& file);
/// Returns the format whose files begin with these bytes, uncompressed; null if no readable format does.
const RecordFormat* format_by_beginning(std::string_view beginning);
/// Returns a description of a file that begins with these bytes and cannot be read, with advice: "ORC, to be converted
/// to JSON lines". Returns "" if no known format begins so.
std::string foreign_format(std::string_view beginning);

}  // namespace lyceum
