#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lyceum {

/// A line of a text file.
struct TextLine {
  std::string text;      // without its end
  std::int64_t number;   // counted from 1
  std::string location;  // "FILE:NUMBER", for messages
};

/// Reads the lines of a UTF-8 file that fits into memory. The file may be compressed and begin with a byte order mark,
/// and lines may end with "\r\n". Leaves out blank lines. Throws a bad_input Error if the file cannot be read or is not
/// UTF-8.
std::vector<TextLine> read_text_lines(const std::filesystem::path& file);

}  // namespace lyceum
