#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/text_range.h"

namespace lyceum {

/// The steps that regular expressions may still take on a document: all of them together 10 million, and 100 for each
/// of its bytes.
struct RegexBudget {
  explicit RegexBudget(std::size_t bytes) : left(10'000'000 + 100 * bytes) {}
  std::size_t left;
};

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
  /// Throws a bad_input Error when the search takes more steps than are left for the document.
  void find_all(std::string_view text, RegexBudget& budget, std::vector<TextRange>& matches) const;
  /// Does so for a text that is the whole document.
  void find_all(std::string_view text, std::vector<TextRange>& matches) const {
    RegexBudget budget(text.size());
    find_all(text, budget, matches);
  }

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
