#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// Columns for a terminal. A heading that starts with '>' aligns its column to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);
  void add(std::vector<std::string> row);
  std::string text() const;
  std::vector<std::string> lines() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the headings first
  std::vector<bool> right_;
};

/// Three digits and a prefix, and the unit where there is one: 950, 12.3 k, 3.46 GFLOP/s.
std::string human_count(double value, std::string_view unit = "");
/// "1.23 GB"
std::string text_of_bytes(std::int64_t bytes);
/// "1 rank", "3 micro-batches"
std::string count_text(std::int64_t count, std::string_view one);
/// "first" … "tenth", "11th", "22nd": for n from 1.
std::string ordinal(std::int64_t n);
/// "0–12, 15, 17": ascending numbers.
std::string ranges_text(const std::vector<std::size_t>& numbers);

}  // namespace lyceum
