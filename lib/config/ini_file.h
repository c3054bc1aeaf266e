#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// One entry of an INI file: `key = value` in `[section]` as "section.key", with its line, counted from 1.
struct IniEntry {
  std::string key, value;
  std::int64_t line = 0;
};

/// Reads an INI file. A comment begins with # or ; at the start of a line or after a space. Mistakes (no such file,
/// more than 1 MiB, a line of another form, a key given twice) are appended to `mistakes`, one line of text each. The
/// first of repeated keys is returned.
std::vector<IniEntry> read_ini(const std::string& file, std::vector<std::string>& mistakes);
/// Reads an INI file from a stream; messages use `name` for it. Mistakes as above, except for the size.
std::vector<IniEntry> read_ini(std::istream& stream, const std::string& name, std::vector<std::string>& mistakes);

/// Returns the text without spaces, tabs and carriage returns at both ends. The result refers to `text`.
std::string_view trimmed(std::string_view text);

}  // namespace lyceum
