#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// `key = value` under `[section]`, as `section.key`, and the line that it is in, counted from 1.
struct IniEntry {
  std::string key, value;
  std::int64_t line = 0;
};

/// Reads an INI file; a comment begins with # or ; at the start of a line or after a space. Mistakes (no such file, one
/// of more than 1 MiB, a line of another form, a key given twice) are added to `mistakes`, a line of text each.
std::vector<IniEntry> read_ini(const std::string& file, std::vector<std::string>& mistakes);
/// The same from a stream; messages call it `name`.
std::vector<IniEntry> read_ini(std::istream& stream, const std::string& name, std::vector<std::string>& mistakes);

/// Without blanks, tabs and carriage returns at its ends.
std::string_view trimmed(std::string_view text);

}  // namespace lyceum
