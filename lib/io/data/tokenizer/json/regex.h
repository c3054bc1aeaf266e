#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/text_range.h"

namespace lyceum {

/// The number of steps that regular expressions may still take on one document. It begins with 10 million, plus 100
/// for each of the document's bytes, and all searches in the document share it.
struct RegexBudget {
  explicit RegexBudget(std::size_t bytes) : left(10'000'000 + 100 * bytes) {}
  std::size_t left;
};

/// A regular expression in the syntax of Oniguruma, the library that `tokenizers` uses. Threads may share it.
class Regex {
 public:
  /// Throws a bad_input Error if the pattern is invalid or longer than 10000 bytes.
  explicit Regex(const std::string& pattern);
  /// Returns a pattern that matches exactly this text.
  static std::string quoted(std::string_view text);
  /// Returns an expression that matches exactly this text.
  static Regex literal(std::string_view text);
  ~Regex();
  Regex(Regex&&) noexcept;

  /// Sets `matches` to the matches in `text` from left to right, which do not overlap. An empty match counts unless it
  /// follows another match immediately. `text` is valid UTF-8. Throws a bad_input Error if the search takes more steps
  /// than the budget has left.
  void find_all(std::string_view text, RegexBudget& budget, std::vector<TextRange>& matches) const;
  /// Calls the function above with the budget of a document that consists of `text`.
  void find_all(std::string_view text, std::vector<TextRange>& matches) const {
    RegexBudget budget(text.size());
    find_all(text, budget, matches);
  }

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
