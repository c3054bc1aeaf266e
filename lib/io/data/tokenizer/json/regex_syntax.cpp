#include "io/data/tokenizer/json/regex_syntax.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/data/tokenizer/json/regex_properties.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// The POSIX brackets whose characters differ between versions of Unicode or of Oniguruma.
constexpr std::array<std::string_view, 9> posix_brackets{"alnum", "alpha", "digit", "graph", "lower",
                                                         "print", "punct", "upper", "word"};

/// Parses a pattern from left to right and writes the rewritten one.
class Rewriting {
 public:
  Rewriting(const std::string& pattern, const std::string& counter, const std::string& barrier)
      : in_(pattern), counter_(counter), barrier_(barrier) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        character_class();
      } else if (c == '(') {
        open();
      } else if (c == ')') {
        close();
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        repetition();
      } else {
        out_ += in_[at_++];
      }
    }
    return out_;
  }

 private:
  /// An open group. `atomic`: it is not backtracked into. `repeats`: it contains a repetition.
  struct Group {
    std::size_t content;  // offset of its content in the output
    bool atomic, repeats;
    bool ignores_case_behind;  // case is ignored after the group
  };

  std::string_view rest() const { return std::string_view(in_).substr(at_); }
  void copy(std::size_t bytes) {
    out_ += rest().substr(0, bytes);
    at_ = std::min(at_ + bytes, in_.size());
  }

  /// Writes a class with additional characters: `has` is the original class, `more` the contents of the addition.
  /// `in_class`: it is within brackets. With the option `i`, characters in brackets also match in the other case, but a
  /// class such as \d outside of brackets does not.
  void append_widened(std::string_view has, std::string_view more, bool negated, bool in_class) {
    if (ignores_case_ && !in_class && !more.empty()) {
      const bool single = has.rfind('\\') == 0;
      const std::string plain = single ? std::string(has) : "[" + std::string(has) + "]";
      out_.append("(?:").append(negated ? "(?!" : "").append(plain).append("|[").append(more).append("]");
      out_ += negated ? ")\\O)" : ")";
    } else if (more.empty() && !negated && in_class) {
      out_ += has;
    } else if (negated) {
      out_.append("[^").append(has).append(more).append("]");
    } else {
      out_.append(in_class ? "" : "[").append(has).append(more).append(in_class ? "" : "]");
    }
  }

  void append_word(bool negated, bool in_class) {
    // Outside of brackets, \w also includes the other digits of Latin-1: ² ³ ¹ ¼ ½ ¾.
    const std::string digits = in_class ? "" : R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
    append_widened("\\w", digits + new_characters_of("w"), negated, in_class);
  }

  /// Writes \b (between a word character and another one) or, if negated, \B.
  void append_boundary(bool negated) {
    const auto look = [&](const char* open) {
      out_ += open;
      append_word(false, false);
      out_ += ')';
    };
    out_ += "(?:";
    look("(?<=");
    look(negated ? "(?=" : "(?!");
    out_ += '|';
    look("(?<!");
    look(negated ? "(?!" : "(?=");
    out_ += ')';
  }

  void escape(bool in_class) {
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (c == 'w' || c == 'W' || c == 'd' || c == 'D') {
      at_ += 2;
      const auto lower = static_cast<char>(std::tolower(c));
      if (lower == 'w') return append_word(c != lower, in_class);
      return append_widened("\\d", new_characters_of("d"), c != lower, in_class);
    }
    if (!in_class && (c == 'b' || c == 'B')) {
      at_ += 2;
      return append_boundary(c == 'B');
    }
    if ((c == 'p' || c == 'P') && at_ + 2 < in_.size() && in_[at_ + 2] == '{') return property(in_class);
    if (c == 'X' || c == 'y' || c == 'Y') {
      fail(ExitCode::bad_input, "the regular expression {} has \\{}, which depends on the version of Unicode",
           excerpt(in_), in_.substr(at_ + 1, 1));
    }
    const bool backreference = !in_class && ((c >= '1' && c <= '9') || c == 'k');
    if (!backreference) return copy(c == 0 ? 1 : 1 + std::max<std::size_t>(1, utf8_length(in_, at_ + 1)));
    std::size_t bytes = 2;
    if (c == 'k') {
      const std::size_t end = rest().find_first_of(">'", 3);
      bytes = end == std::string_view::npos ? rest().size() : end + 1;
    } else {
      while (at_ + bytes < in_.size() && std::isdigit(static_cast<unsigned char>(in_[at_ + bytes])) != 0) ++bytes;
    }
    out_.append("(?:").append(counter_);
    copy(bytes);
    out_ += ')';
  }

  void property(bool in_class) {
    const std::size_t end = rest().find('}');
    if (end == std::string_view::npos) return copy(rest().size());
    const std::string given(rest().substr(0, end + 1));
    std::string name;
    for (const char c : given.substr(3, end - 3)) {
      if (c != ' ' && c != '_' && c != '-') name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    bool negated = given[1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.erase(0, 1);
    }
    at_ += end + 1;
    append_property(name, given, negated, in_class);
  }

  /// Writes a property by its name in lower case without separators, with its new characters. `given`: how it is
  /// written in the pattern, with the negation.
  void append_property(const std::string& name, std::string_view given, bool negated, bool in_class) {
    require_input(!differs_between_versions(name),
                  "the regular expression {} has {}, which depends on the version of Unicode", excerpt(in_), given);
    if (name == "posixpunct")
      return append_widened("\\p{P}\\p{S}", new_characters_of("P") + new_characters_of("S"), negated, in_class);
    if (name == "word") return append_word(negated, in_class);
    if (name == "digit") return append_widened("\\d", new_characters_of("d"), negated, in_class);
    const std::string category = category_of(name);
    const bool one_case =
        category == "Lu" || category == "Ll" || name.starts_with("upper") || name.starts_with("lower");
    require_input(
        !(one_case && in_class && ignores_case_),
        "the regular expression {} has {} in brackets and ignores case, which depends on the version of Unicode",
        excerpt(in_), given);
    const std::string more = category.empty() ? new_characters_of_property(name) : new_characters_of(category);
    if (more.empty()) {
      out_ += given;
    } else if (category == "Cn" || category == "C") {
      append_narrowed(category, negated);
    } else if (category == "Mn") {
      append_widened(R"([\p{Mn}&&[^\x{1171e}]])", more, negated, in_class);  // Unicode 15 moved U+1171E to Mc
    } else {
      append_widened("\\p{" + (category.empty() ? name : category) + "}", more, negated, in_class);
    }
  }

  /// Writes \p{Cn} or \p{C} without the new characters, which are no longer unassigned; those of Cf remain in \p{C}.
  void append_narrowed(const std::string& category, bool negated) {
    const std::string lost = new_characters_of("Cn"), kept = category == "C" ? new_characters_of("Cf") : "";
    if (negated) {
      out_.append("[\\P{" + category + "}").append(lost).append(kept.empty() ? "" : "&&[^" + kept + "]").append("]");
    } else {
      out_.append("[\\p{" + category + "}&&[^").append(lost).append("]").append(kept).append("]");
    }
  }

  void character_class() {
    copy(1);
    if (rest().starts_with('^')) copy(1);
    if (rest().starts_with(']')) copy(1);
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '\\') {
        escape(true);
      } else if (rest().starts_with("[:")) {
        bracket();
      } else if (in_[at_] == '[') {
        character_class();
      } else {
        copy(1);
      }
    }
    copy(1);
  }

  /// Rewrites a POSIX bracket: [:alpha:], [:^alpha:].
  void bracket() {
    const std::size_t end = rest().find(":]");
    if (end == std::string_view::npos) return copy(1);
    const std::string_view given = rest().substr(0, end + 2);
    const bool negated = given[2] == '^';
    const std::size_t begin = negated ? 3 : 2;
    const std::string name(given.substr(begin, std::max(end, begin) - begin));
    if (std::ranges::find(posix_brackets, name) == posix_brackets.end()) return copy(given.size());
    at_ += given.size();
    append_property(name == "punct" ? "posixpunct" : name, given, negated, true);
  }

  void open() {
    if (rest().starts_with("(?#")) return copy(std::min(rest().find(')'), rest().size() - 1) + 1);
    require_input(!rest().starts_with("(?~") && !rest().starts_with("(?{") && !rest().starts_with("(*"),
                  "the regular expression {} has a group {}, which is not supported", excerpt(in_),
                  rest().substr(0, 3));
    const bool atomic = rest().starts_with("(?=") || rest().starts_with("(?!") || rest().starts_with("(?>");
    const bool behind = rest().starts_with("(?<=") || rest().starts_with("(?<!");
    std::size_t bytes = 1;  // of the opening of the group
    if (atomic) bytes = 3;
    if (behind) bytes = 4;
    const bool before = ignores_case_;
    bool alone = false;                                    // (?i), which applies up to the end of the enclosing group
    if (!atomic && !behind && rest().starts_with("(?")) {  // options, a name or a condition
      bytes = 2;
      bool on = true;
      for (; at_ + bytes < in_.size(); ++bytes) {
        const char c = in_[at_ + bytes];
        if (c == '-') on = false;
        if (c == 'i') ignores_case_ = on;
        if (c == '-') continue;
        if (std::isalpha(static_cast<unsigned char>(c)) == 0) break;
        require_input(std::string_view("ims").find(c) != std::string_view::npos,
                      "the regular expression {} has the option {}, which is not supported", excerpt(in_),
                      in_.substr(at_ + bytes, 1));
      }
      alone = at_ + bytes < in_.size() && in_[at_ + bytes] == ')';
    }
    copy(bytes);
    groups_.push_back({out_.size(), atomic, false, alone ? ignores_case_ : before});
  }

  void close() {
    if (!groups_.empty()) {
      const Group group = groups_.back();
      groups_.pop_back();
      ignores_case_ = group.ignores_case_behind;
      if (group.atomic && group.repeats) {
        out_.insert(group.content, "(?:");
        out_.append(")").append(counter_);
      }
      if (!groups_.empty()) groups_.back().repeats = groups_.back().repeats || group.repeats;
    }
    copy(1);
  }

  /// Copies all quantifiers of one element, as in a*, a+?, a{2,}+.
  void repetition() {
    bool greedy_without_end = false, possessive = false;
    for (bool first = true; at_ < in_.size(); first = false) {
      const char c = in_[at_];
      if (c == '{') {
        const std::size_t end = rest().find('}');
        const std::string_view inside = end == std::string_view::npos ? "" : rest().substr(1, end - 1);
        const bool counts = !inside.empty() && inside.find_first_not_of("0123456789,") == std::string_view::npos;
        if (!counts) {
          if (first) copy(1);
          break;
        }
        greedy_without_end = greedy_without_end || inside.ends_with(',');
        copy(end + 1);
      } else if (c == '*' || c == '+' || c == '?') {
        possessive = possessive || (c == '+' && !first);
        greedy_without_end = greedy_without_end || c == '*' || c == '+';
        copy(1);
      } else {
        break;
      }
    }
    if (!groups_.empty()) groups_.back().repeats = true;
    if (possessive) {
      out_ += counter_;
    } else if (greedy_without_end && at_ < in_.size() && in_[at_] != '|') {
      out_ += barrier_;
    }
  }

  const std::string& in_;
  const std::string& counter_;
  const std::string& barrier_;
  std::size_t at_ = 0;
  bool ignores_case_ = false;
  std::string out_;
  std::vector<Group> groups_;
};

}  // namespace

std::string rewrite_regex(const std::string& pattern, const std::string& counter, const std::string& barrier) {
  return Rewriting(pattern, counter, barrier).run();
}

}  // namespace lyceum
