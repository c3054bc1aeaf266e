#include "config/ini_file.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "io/text/utf8.h"

namespace lyceum {
namespace {

constexpr std::size_t most_bytes = 16 << 20;  // limit of a file: several lists of sources fit in

std::string_view without_comment(std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool word_begins = i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t';
    if (word_begins && (line[i] == '#' || line[i] == ';')) return trimmed(line.substr(0, i));
  }
  return trimmed(line);
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r";
  const auto begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

// Boost's reader reports no line numbers, stops at the first mistake and removes every # from a value.
std::vector<IniEntry> read_ini(std::istream& stream, const std::string& file, std::vector<std::string>& mistakes) {
  std::vector<IniEntry> entries;
  std::map<std::string, std::int64_t> first_line;
  std::string section, text;
  for (std::int64_t number = 1; std::getline(stream, text); ++number) {
    if (number == 1 && text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
    if (text.find('\0') != std::string::npos) {
      mistakes.push_back(fmt::format("{} line {}: not a text file: name an INI file", file, number));
      return entries;
    }
    const std::string_view line = without_comment(text);
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    if (line.front() == '[' && line.back() == ']') {
      section = trimmed(line.substr(1, line.size() - 2));
    } else if (equals == std::string_view::npos || equals == 0) {
      mistakes.push_back(
          fmt::format("'{}' in {} line {}: expected [section], key = value or # comment", excerpt(line), file, number));
    } else {
      const std::string_view key = trimmed(line.substr(0, equals));
      IniEntry entry{section.empty() ? std::string(key) : fmt::format("{}.{}", section, key),
                     std::string(trimmed(line.substr(equals + 1))), number};
      const auto [first, fresh] = first_line.emplace(entry.key, number);
      if (fresh) {
        entries.push_back(std::move(entry));
      } else {
        mistakes.push_back(
            fmt::format("{} is given twice in {}: lines {} and {}", excerpt(entry.key), file, first->second, number));
      }
    }
  }
  return entries;
}

std::vector<IniEntry> read_ini(const std::string& file, std::vector<std::string>& mistakes) {
  std::ifstream stream;  // also a FIFO, as in --config <(generate)
  do {
    errno = 0;
    stream.open(file, std::ios::binary);
  } while (!stream.is_open() && errno == EINTR);
  std::string text;
  for (std::array<char, 4096> block{}; text.size() <= most_bytes && stream;) {
    stream.read(block.data(), std::ssize(block));
    text.append(block.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (text.size() > most_bytes) {
    mistakes.push_back(fmt::format("{} has more than {} bytes: name an INI file", file, most_bytes));
    return {};
  }
  if (!stream.eof()) {  // not opened, a folder, or a read error
    mistakes.push_back(fmt::format("cannot read the file '{}': name an INI file that exists", file));
    return {};
  }
  std::istringstream lines(text);
  return read_ini(lines, file, mistakes);
}

}  // namespace lyceum
