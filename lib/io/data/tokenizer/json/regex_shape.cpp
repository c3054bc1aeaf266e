#include "io/data/tokenizer/json/regex_shape.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <vector>

#include "core/error.h"
#include "io/data/tokenizer/json/byte_characters.h"
#include "io/data/tokenizer/json/regex.h"
#include "io/text/text_range.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// Sets of characters beside the places of CutPlaces, as bits of a mask.
enum Kind : unsigned { letter = 1, space = 2, newline = 4, line_begin = 8, any = 15 };

/// Returns the kinds of the first character of a text.
unsigned kinds_of(std::string_view text, const SpaceForms& forms) {
  const auto begins_with = [&](const std::string& form) { return text.starts_with(form); };
  const char c = text.front();
  return (is_ascii_letter(c) ? letter : 0u) | (may_begin_part(c) ? line_begin : 0u) |
         (std::ranges::any_of(forms.spaces, begins_with) ? space : 0u) |
         (std::ranges::any_of(forms.newlines, begins_with) ? newline : 0u);
}

/// Adds the places between a character of the kinds `before` and one of the kinds `after`.
void add_places(CutPlaces& places, unsigned before, unsigned after) {
  places.words = places.words || ((before & letter) != 0 && (after & space) != 0);
  places.lines = places.lines || ((before & newline) != 0 && (after & line_begin) != 0);
}

/// Returns the kinds of the characters that an expression without context matches, whether or not it ignores case.
unsigned kinds_matched(const std::string& atom, const SpaceForms& forms) {
  static const std::string probe = [] {
    std::string all = " ▁\n" + byte_characters(" \n");
    for (char c = '!'; c < 0x7F; ++c) all += c;
    return all;
  }();
  const auto find = [&](const std::string& expression) {
    std::vector<TextRange> matches;
    Regex(expression).find_all(probe, matches);
    unsigned kinds = 0;
    for (const TextRange& match : matches) {
      for (std::size_t at = match.begin; at < match.end; at += utf8_length(probe, at)) {
        kinds |= kinds_of(std::string_view(probe).substr(at), forms);
      }
    }
    return kinds;
  };
  unsigned kinds = 0;
  try {
    kinds = find(atom);
  } catch (const Error&) {  // not an expression by itself, such as a byte of a character
    return any;
  }
  try {
    kinds |= find("(?i)" + atom);
  } catch (const Error&) {  // refused only if it ignores case, which adds nothing but letters
    kinds |= letter | line_begin;
  }
  return kinds;
}

/// Parses an expression, and finds for each of its parts the kinds of characters with which a match of it may begin and
/// end. Two characters follow each other in a match if they are the last one of a part and the first one of the next.
class Analysis {
 public:
  Analysis(const std::string& pattern, const SpaceForms& forms) : in_(pattern), forms_(forms) {}

  RegexShape run() {
    const Part all = alternatives();
    if (at_ < in_.size()) unknown_ = true;
    if (unknown_) return {};
    return {.may_be_empty = all.may_be_empty, .spans = spans_};
  }

 private:
  struct Part {
    bool may_be_empty = true;
    unsigned first = 0, last = 0;  // kinds of the first and the last character
  };

  std::string_view rest() const { return std::string_view(in_).substr(at_); }
  bool skip(std::string_view text) {
    if (!rest().starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  /// Moves behind the next `text`.
  void skip_past(std::string_view text) {
    const std::size_t found = in_.find(text, at_);
    if (found == std::string::npos) unknown_ = true;
    at_ = found == std::string::npos ? in_.size() : found + text.size();
  }
  Part unknown() {
    unknown_ = true;
    return {};
  }

  /// Parses up to the end of the expression or of the group.
  Part alternatives() {
    Part all = sequence();
    while (skip("|")) {
      const Part one = sequence();
      all = {all.may_be_empty || one.may_be_empty, all.first | one.first, all.last | one.last};
    }
    return all;
  }

  Part sequence() {
    Part all;
    while (!unknown_ && at_ < in_.size() && in_[at_] != '|' && in_[at_] != ')') {
      const Part next = repeated(element());
      add_places(spans_, all.last, next.first);
      all = {all.may_be_empty && next.may_be_empty, all.first | (all.may_be_empty ? next.first : 0u),
             next.last | (next.may_be_empty ? all.last : 0u)};
    }
    return all;
  }

  /// Parses the quantifiers of an element.
  Part repeated(Part one) {
    while (at_ < in_.size()) {
      if (in_[at_] == '{') {
        const std::size_t end = rest().find('}');
        const std::string_view counts = end == std::string_view::npos ? "" : rest().substr(1, end - 1);
        if (counts.empty() || counts == "," || counts.find_first_not_of("0123456789,") != counts.npos) break;
        at_ += end + 1;
        one.may_be_empty = one.may_be_empty || counts.front() == '0' || counts.front() == ',';
        if (counts != "0" && counts != "1") add_places(spans_, one.last, one.first);
      } else if (const char c = in_[at_]; c == '*' || c == '+' || c == '?') {
        ++at_;
        one.may_be_empty = one.may_be_empty || c != '+';
        if (c != '?') add_places(spans_, one.last, one.first);
        if (!skip("?")) skip("+");  // lazy or possessive
      } else {
        break;
      }
    }
    return one;
  }

  Part element() {
    const char c = in_[at_];
    if (c == '(') return group();
    if (c == '[') return one_of_class();
    if (c == '\\') return escape();
    if (c == '^' || c == '$') {
      ++at_;
      return {};
    }
    const std::size_t begin = at_;
    at_ += utf8_length(in_, at_);
    if (c == '.') return {.may_be_empty = false, .first = any, .last = any};  // with the option m also a newline
    if (at_ == begin + 1) {  // an ASCII character, whose other case is of the same kinds
      const unsigned kinds = kinds_of(std::string_view(in_).substr(begin), forms_);
      return {.may_be_empty = false, .first = kinds, .last = kinds};
    }
    return matching(in_.substr(begin, at_ - begin));
  }

  Part matching(const std::string& atom) const {
    const unsigned kinds = kinds_matched(atom, forms_);
    return {.may_be_empty = false, .first = kinds, .last = kinds};
  }

  Part group() {
    ++at_;
    bool looks = false;
    if (skip("?#")) {
      skip_past(")");
      return {};
    }
    if (skip("?=") || skip("?!") || skip("?<=") || skip("?<!")) {
      looks = true;
    } else if (skip("?<") || skip("?P<")) {
      skip_past(">");
    } else if (skip("?'")) {
      skip_past("'");
    } else if (skip("?>") || skip("?:")) {
    } else if (skip("?")) {
      while (at_ < in_.size() && (std::isalpha(static_cast<unsigned char>(in_[at_])) != 0 || in_[at_] == '-')) ++at_;
      if (skip(")")) {  // (?i), whose scope is the rest of the enclosing group: a(?i)b|c is a(?i:b|c)
        if (++depth_ > 100) return unknown();
        return alternatives();
      }
      if (!skip(":")) return unknown();
    }
    if (++depth_ > 100) return unknown();
    const Part inside = alternatives();
    --depth_;
    if (!skip(")")) return unknown();
    return looks ? Part{} : inside;
  }

  /// Moves behind a class in brackets.
  void skip_class() {
    ++at_;
    skip("^");
    skip("]");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '\\') {
        at_ += 2;
      } else if (rest().starts_with("[:")) {
        skip_past(":]");
      } else if (in_[at_] == '[') {
        skip_class();
      } else {
        ++at_;
      }
    }
    ++at_;
  }

  Part one_of_class() {
    const std::size_t begin = at_;
    skip_class();
    at_ = std::min(at_, in_.size());
    return matching(in_.substr(begin, at_ - begin));
  }

  Part escape() {
    const std::size_t begin = at_++;
    if (at_ >= in_.size()) return unknown();
    const char c = in_[at_];
    at_ += utf8_length(in_, at_);
    if (std::string_view("bBAZzGK").find(c) != std::string_view::npos) return {};
    if ((c == 'p' || c == 'P' || c == 'x') && rest().starts_with('{')) {
      skip_past("}");
    } else if (c == 'x') {
      while (at_ < in_.size() && at_ < begin + 4 && std::isxdigit(static_cast<unsigned char>(in_[at_])) != 0) ++at_;
    } else if (c == 'u') {
      at_ = std::min(at_ + 4, in_.size());
    } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 &&
               std::string_view("sSdDwWhHntrfvaeORN").find(c) == std::string_view::npos) {
      return unknown();
    }
    return matching(in_.substr(begin, at_ - begin));
  }

  const std::string& in_;
  const SpaceForms& forms_;
  std::size_t at_ = 0;
  int depth_ = 0;         // of groups
  bool unknown_ = false;  // a construct is not analysed
  CutPlaces spans_;
};

}  // namespace

const SpaceForms& all_space_forms() {
  static const SpaceForms all{{" ", "▁", byte_characters(" ")}, {"\n", byte_characters("\n")}};
  return all;
}

CutPlaces spans_of(std::string_view text, const SpaceForms& forms) {
  CutPlaces places;
  unsigned before = 0;
  for (std::size_t at = 0; at < text.size(); at += std::max<std::size_t>(1, utf8_length(text, at))) {
    const unsigned kinds = kinds_of(text.substr(at), forms);
    add_places(places, before, kinds);
    before = kinds;
  }
  return places;
}

RegexShape shape_of(const std::string& pattern, const SpaceForms& forms) { return Analysis(pattern, forms).run(); }

}  // namespace lyceum
