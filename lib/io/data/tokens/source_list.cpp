#include "io/data/tokens/source_list.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/text/utf8.h"

namespace lyceum {
namespace {

/// Returns the words of a line before a comment.
std::vector<std::string> words_of_line(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word && !word.starts_with('#');) words.push_back(word);
  return words;
}

/// Returns the weight that a word states; nothing if it is not a number.
std::optional<double> weight_in(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string sources_of_file(const std::filesystem::path& file) {
  std::ifstream in = open_to_read(file);
  require_usage(in.is_open(),
                "{}: cannot be opened: {}; a value that begins with @ names a file with one source a line",
                file.string(), system_reason(errno));
  std::error_code error;
  require_usage(static_cast<std::int64_t>(std::filesystem::file_size(file, error)) <= most_source_list_bytes && !error,
                "{}: is larger than {} MiB: it must have one source a line", file.string(),
                most_source_list_bytes >> 20);
  std::map<std::filesystem::path, std::int64_t> lines;  // the line of each prefix; a and ./a are the same
  std::optional<bool> weighted;
  std::string value, line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (number == 1 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
    const std::vector<std::string> words = words_of_line(line);
    if (words.empty()) continue;
    const std::string where = fmt::format("{}:{}", file.string(), number);
    const std::optional<double> weight = words.size() == 2 ? weight_in(words[0]) : std::nullopt;
    require_usage(words.size() == 1 || weight, "{}: '{}' is not a prefix, or a weight and a prefix, without spaces",
                  where, line);
    require_usage(words.size() == 2 || !weight_in(words[0]), "{}: the weight {} has no prefix", where, words[0]);
    const double positive = weight.value_or(1);
    require_usage(positive > 0 && std::isfinite(positive), "{}: the weight {} is not positive", where, words[0]);
    require_usage(!weighted || *weighted == weight.has_value(), "{}: give either all sources a weight or none", where);
    weighted = weight.has_value();
    const auto [same, fresh] = lines.emplace(std::filesystem::path(words.back()).lexically_normal(), number);
    require_usage(fresh, "{}: {} is already in line {}; give it once, with the sum of its weights", where, words.back(),
                  same->second);
    require_usage(std::ssize(lines) <= most_listed_sources, "{}: more than {} sources", file.string(),
                  most_listed_sources);
    const std::string& prefix = words.back();
    require_usage(!prefix.starts_with(';') && printable(replace_invalid_utf8(prefix)) == replace_invalid_utf8(prefix),
                  "{}: {} begins with ; or has control characters: use another name", where, prefix);
    require_usage(!prefix.starts_with("~/"), "{}: {} begins with ~, which only a shell would replace by a folder",
                  where, prefix);
    for (const std::string& word : words) value += (value.empty() ? "" : " ") + word;
  }
  require_usage(!in.bad(), "{}: cannot be read: {}", file.string(), system_reason(errno));
  require_usage(!value.empty(), "{}: names no source: it must have one source a line", file.string());
  return value;
}

}  // namespace lyceum
