#include "io/data/records/text_lines.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "core/error.h"
#include "io/files/text_stream.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

std::string uncompressed(const std::filesystem::path& file) {
  constexpr std::size_t at_a_time = std::size_t{1} << 16;
  TextStream stream(file);
  std::string text;
  for (std::size_t size = 0;; size = text.size()) {
    text.resize(size + at_a_time);
    text.resize(size + stream.read(std::span(text).subspan(size)));
    if (text.size() == size) return text;
  }
}

}  // namespace

std::vector<TextLine> read_text_lines(const std::filesystem::path& file) {
  const std::string text = uncompressed(file);
  require_input(is_utf8(text), "{} is not UTF-8 text", file.string());
  std::vector<TextLine> lines;
  std::string_view rest = text;
  if (rest.starts_with(byte_order_mark)) rest.remove_prefix(byte_order_mark.size());
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    lines.push_back(
        {.text = std::string(line), .number = number, .location = file.string() + ":" + std::to_string(number)});
  }
  return lines;
}

}  // namespace lyceum
