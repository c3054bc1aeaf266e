#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lyceum {

/// Columns for a terminal. A heading that starts with '>' aligns its column to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);
  void add(std::vector<std::string> row);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the headings first
  std::vector<bool> right_;
};

/// "1.23 GB", "12.3 M": three digits.
std::string text_of_bytes(std::int64_t bytes);
std::string text_of_count(std::int64_t count);

}  // namespace lyceum
