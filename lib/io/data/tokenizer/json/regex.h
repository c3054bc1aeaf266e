#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/text_range.h"

namespace lyceum {

/// A regular expression of Oniguruma's syntax, the library that `tokenizers` uses. Threads may share it.
class Regex {
 public:
  /// Throws a bad_input Error for a pattern that is wrong or longer than 10000 bytes.
  explicit Regex(const std::string& pattern);
  /// A pattern that matches these very bytes.
  static std::string quoted(std::string_view text);
  /// One that matches these very bytes.
  static Regex literal(std::string_view text);
  ~Regex();
  Regex(Regex&&) noexcept;

  /// The matches from left to right, none within another; an empty one only where no match ends. `text` is valid UTF-8.
  /// Throws a bad_input Error when the pattern backtracks out of all proportion to the text.
  void find_all(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
