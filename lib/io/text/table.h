#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// A table of aligned columns for a terminal. A heading that starts with '>' aligns its column to the right. Widths are
/// counted in bytes, so cells that are not ASCII are misaligned.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);
  /// Adds a row. Missing cells at its end are empty, surplus cells are left out, and control characters are escaped.
  void add(std::vector<std::string> row);
  /// Returns all lines, each with a newline at its end.
  std::string text() const;
  /// Returns the same lines without newlines.
  std::vector<std::string> lines() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // rows_[0]: the headings
  std::vector<bool> right_;
};

/// Formats a number with three significant digits and an SI prefix, followed by the unit if it is not empty: "950",
/// "12.3 k", "3.46 GFLOP/s".
std::string human_count(double value, std::string_view unit = "");
/// Formats a number of bytes: "1.23 GB", with 1 GB = 10^9 bytes.
std::string text_of_bytes(std::int64_t bytes);
/// Formats a count with the singular or plural of a noun: "1 rank", "3 micro-batches". `one`: the singular. The plural
/// has an added "s", or "es" after "ch".
std::string count_text(std::int64_t count, std::string_view one);
/// Returns "first" … "tenth", "11th", "22nd", … for n ≥ 1.
std::string ordinal(std::int64_t n);
/// Formats ascending numbers, joining three or more consecutive ones: "0–12, 15, 17".
std::string ranges_text(const std::vector<std::size_t>& numbers);

}  // namespace lyceum
