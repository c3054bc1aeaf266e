#include "io/data/tokenizer/json/regex_syntax.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// The characters that Unicode 15 and 16 added, by general category, as contents of a character class.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> new_characters{{
    {"Lu", R"(\x{1c89}\x{a7cb}-\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65})"},
    {"Ll", R"(\x{1c8a}\x{a7cd}\x{a7db}\x{10d70}-\x{10d85}\x{1df25}-\x{1df2a})"},
    {"Lm", R"(\x{10d4e}\x{10d6f}\x{16d40}-\x{16d42}\x{16d6b}-\x{16d6c}\x{1e030}-\x{1e06d}\x{1e4eb})"},
    {"Lo",
     R"(\x{105c0}-\x{105f3}\x{10d4a}-\x{10d4d}\x{10d4f}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d43}-\x{16d6a}\x{18cff}\x{1b132}\x{1b155}\x{1e4d0}-\x{1e4ea}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})"},
    {"Mn",
     R"(\x{897}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241}\x{113bb}-\x{113c0}\x{113ce}\x{113d0}\x{113d2}\x{113e1}-\x{113e2}\x{11f00}-\x{11f01}\x{11f36}-\x{11f3a}\x{11f40}\x{11f42}\x{11f5a}\x{13440}\x{13447}-\x{13455}\x{1611e}-\x{16129}\x{1612d}-\x{1612f}\x{1e08f}\x{1e4ec}-\x{1e4ef}\x{1e5ee}-\x{1e5ef})"},
    {"Mc",
     R"(\x{cf3}\x{113b8}-\x{113ba}\x{113c2}\x{113c5}\x{113c7}-\x{113ca}\x{113cc}-\x{113cd}\x{113cf}\x{1171e}\x{11f03}\x{11f34}-\x{11f35}\x{11f3e}-\x{11f3f}\x{11f41}\x{1612a}-\x{1612c})"},
    {"Cf", R"(\x{13439}-\x{1343f})"},
    {"Nd",
     R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139}\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})"},
    {"No", R"(\x{1d2c0}-\x{1d2d3})"},
    {"Pd", R"(\x{10d6e})"},
    {"Po",
     R"(\x{1b4e}-\x{1b4f}\x{1b7f}\x{113d4}-\x{113d5}\x{113d7}-\x{113d8}\x{11b00}-\x{11b09}\x{11be1}\x{11f43}-\x{11f4f}\x{16d6d}-\x{16d6f}\x{1e5ff})"},
    {"Sm", R"(\x{10d8e}-\x{10d8f})"},
    {"So",
     R"(\x{2427}-\x{2429}\x{2ffc}-\x{2fff}\x{31e4}-\x{31e5}\x{31ef}\x{1cc00}-\x{1ccef}\x{1cd00}-\x{1ceb3}\x{1f6dc}\x{1f774}-\x{1f776}\x{1f77b}-\x{1f77f}\x{1f7d9}\x{1f8b2}-\x{1f8bb}\x{1f8c0}-\x{1f8c1}\x{1fa75}-\x{1fa77}\x{1fa87}-\x{1fa89}\x{1fa8f}\x{1faad}-\x{1faaf}\x{1fabb}-\x{1fabf}\x{1fac6}\x{1face}-\x{1facf}\x{1fada}-\x{1fadc}\x{1fadf}\x{1fae8}-\x{1fae9}\x{1faf7}-\x{1faf8}\x{1fbcb}-\x{1fbef})"},
}};

/// Returns the new characters of \w ("w"), of \d ("d") or of a general category. A category of one letter includes all
/// its subcategories: L is Lu, Ll, ….
std::string new_characters_of(std::string_view name) {
  const auto includes = [&](std::string_view category) {
    if (name == "w") return category.front() == 'L' || category.front() == 'M' || category == "Nd";
    if (name == "d") return category == "Nd";
    if (name == "LC") return category == "Lu" || category == "Ll";  // also Lt, which has no new characters
    if (name == "Cn") return true;                                  // they were unassigned
    return category.starts_with(name);
  };
  std::string all;
  for (const auto& [category, characters] : new_characters) {
    if (includes(category)) all += characters;
  }
  return all;
}

/// The long names of general categories, in lower case and without separators. [Unicode, PropertyValueAliases.txt]
constexpr std::array<std::pair<std::string_view, std::string_view>, 39> category_names{{
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
    {"surrogate", "Cs"},
    {"letter", "L"},
    {"casedletter", "LC"},
    {"lowercaseletter", "Ll"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"titlecaseletter", "Lt"},
    {"uppercaseletter", "Lu"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"nonspacingmark", "Mn"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"closepunctuation", "Pe"},
    {"finalpunctuation", "Pf"},
    {"initialpunctuation", "Pi"},
    {"otherpunctuation", "Po"},
    {"openpunctuation", "Ps"},
    {"symbol", "S"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"mathsymbol", "Sm"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"spaceseparator", "Zs"},
}};

/// Returns the short name of a general category; "" if `name`, which is in lower case, is another property.
std::string category_of(const std::string& name) {
  const auto found = std::ranges::find(category_names, name, &std::pair<std::string_view, std::string_view>::first);
  if (found != category_names.end()) return std::string(found->second);
  if (name == "lc") return "LC";
  if (name.empty() || name.size() > 2) return "";
  std::string category = name;
  category.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(category.front())));
  const auto is_it = [&](const auto& each) { return each.second == category; };
  return std::ranges::any_of(category_names, is_it) ? category : "";
}

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
    if (name == "posixpunct")
      return append_widened("\\p{P}\\p{S}", new_characters_of("P") + new_characters_of("S"), negated, in_class);
    if (name == "word") return append_word(negated, in_class);
    if (name == "digit") return append_widened("\\d", new_characters_of("d"), negated, in_class);
    const std::string category = category_of(name);
    const std::string more = category.empty() ? "" : new_characters_of(category);
    if (more.empty()) {
      out_ += given;
    } else if (category == "Cn" || category == "C") {
      append_narrowed(category, negated);
    } else if (category == "Mn") {
      append_widened(R"([\p{Mn}&&[^\x{1171e}]])", more, negated, in_class);  // Unicode 15 moved U+1171E to Mc
    } else {
      append_widened("\\p{" + category + "}", more, negated, in_class);
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
      } else if (rest().starts_with("[:punct:]") || rest().starts_with("[:^punct:]")) {
        const bool negated = in_[at_ + 2] == '^';
        at_ += negated ? 10 : 9;
        append_widened("\\p{P}\\p{S}", new_characters_of("P") + new_characters_of("S"), negated, true);
      } else if (rest().starts_with("[:word:]") || rest().starts_with("[:^word:]")) {
        const bool negated = in_[at_ + 2] == '^';
        at_ += negated ? 9 : 8;
        append_word(negated, true);
      } else if (rest().starts_with("[:digit:]") || rest().starts_with("[:^digit:]")) {
        const bool negated = in_[at_ + 2] == '^';
        at_ += negated ? 10 : 9;
        append_widened("\\d", new_characters_of("d"), negated, true);
      } else if (rest().starts_with("[:")) {
        const std::size_t end = rest().find(":]");
        copy(end == std::string_view::npos ? 1 : end + 2);
      } else if (in_[at_] == '[') {
        character_class();
      } else {
        copy(1);
      }
    }
    copy(1);
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
