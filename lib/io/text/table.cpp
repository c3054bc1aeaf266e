#include "io/text/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <sstream>

#include "core/printable.h"
#include "core/real_text.h"

namespace lyceum {

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    right_.push_back(heading.starts_with('>'));
    if (right_.back()) heading.erase(0, 1);
  }
  rows_.push_back(std::move(headings));
}

void Table::add(std::vector<std::string> row) {
  row.resize(right_.size());
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<std::size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t column = 0; column < widths.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t column = 0; column < widths.size(); ++column) {
      line += right_[column] ? fmt::format("{:>{}}  ", row[column], widths[column])
                             : fmt::format("{:<{}}  ", row[column], widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line;
    text += '\n';
  }
  return text;
}

std::vector<std::string> Table::lines() const {
  std::vector<std::string> lines;
  std::istringstream text(this->text());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string human_count(double value, std::string_view unit) {
  if (!std::isfinite(value)) return real_text(value);
  constexpr std::array prefixes = {"", "k", "M", "G", "T", "P", "E"};
  double size = std::abs(value);
  std::size_t prefix = 0;
  // 999.5 would be rounded to 1000, which has four digits.
  while (size >= 999.5 && prefix + 1 < prefixes.size()) size /= 1000, ++prefix;
  const bool whole = prefix == 0 && size == std::floor(size);
  int decimals = 0;
  if (!whole && size < 99.95) decimals = size < 9.995 ? 2 : 1;
  const bool bare = prefix == 0 && unit.empty();
  return fmt::format("{}{:.{}f}{}{}{}", value < 0 ? "-" : "", size, decimals, bare ? "" : " ", prefixes[prefix], unit);
}

std::string text_of_bytes(std::int64_t bytes) { return human_count(static_cast<double>(bytes), "B"); }

std::string count_text(std::int64_t count, std::string_view one) {
  const std::string_view plural = one.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : plural);
}

std::string ordinal(std::int64_t n) {
  constexpr std::array words{"first", "second",  "third",  "fourth", "fifth",
                             "sixth", "seventh", "eighth", "ninth",  "tenth"};
  if (n >= 1 && n <= std::ssize(words)) return words[static_cast<std::size_t>(n - 1)];
  const bool teen = n / 10 % 10 == 1;
  constexpr std::array endings{"th", "st", "nd", "rd"};
  const std::int64_t digit = n % 10;
  const bool regular = teen || digit < 0 || digit >= std::ssize(endings);
  return fmt::format("{}{}", n, regular ? "th" : endings[static_cast<std::size_t>(digit)]);
}

std::string ranges_text(const std::vector<std::size_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (last > i) text += fmt::format("{}{}", last == i + 1 ? ", " : "–", numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace lyceum
