#include "io/data/tokenizer/json/pre_tokenizer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "core/error.h"
#include "io/data/tokenizer/json/byte_characters.h"
#include "io/data/tokenizer/json/pattern.h"
#include "io/data/tokenizer/unicode.h"
#include "io/text/text_range.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// The treatment of delimiters: `SplitDelimiterBehavior` of `tokenizers`.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A part of a word: a delimiter or the text between two delimiters.
struct Part {
  TextRange range;
  bool delimiter;
};

/// Joins the parts of a word, which cover it, into new words. Reverses the order of `parts` while it works.
void join_parts(std::vector<Part>& parts, Behavior behavior, std::vector<TextRange>& words) {
  words.clear();
  const bool from_the_end = behavior == Behavior::merged_with_next;
  if (from_the_end) std::ranges::reverse(parts);
  bool previous = false;  // the previous part was a delimiter
  for (const Part& part : parts) {
    bool joins = false;
    if (behavior == Behavior::contiguous) {
      joins = part.delimiter == previous;
    } else if (behavior == Behavior::merged_with_previous || behavior == Behavior::merged_with_next) {
      joins = part.delimiter && !previous;
    }
    previous = part.delimiter;
    if (behavior == Behavior::removed && part.delimiter) continue;
    if (!joins || words.empty()) {
      words.push_back(part.range);
    } else if (from_the_end) {
      words.back().begin = part.range.begin;
    } else {
      words.back().end = part.range.end;
    }
  }
  if (from_the_end) std::ranges::reverse(words);
}

/// Splits every word at delimiters, which derived classes find.
class Split : public PreTokenizer {
 public:
  explicit Split(Behavior behavior) : behavior_(behavior) {}

  void apply(WordList& list) const override {
    std::vector<TextRange> made, words;
    std::vector<Part> parts;
    made.reserve(list.text.size() / 4);
    bool keeps_start = false;
    for (const TextRange& word : list.words) {
      parts.clear();
      find_parts(std::string_view(list.text).substr(word.begin, word.end - word.begin), list.budget, parts);
      join_parts(parts, behavior_, words);
      for (const TextRange& part : words) {
        if (part.begin == part.end) continue;
        if (made.empty()) keeps_start = &word == &list.words.front() && part.begin == 0;
        made.push_back({word.begin + part.begin, word.begin + part.end});
      }
    }
    list.at_start = list.at_start && keeps_start;
    list.words = std::move(made);
  }

 private:
  /// Appends the parts of a word, which must cover it. The word is not empty.
  virtual void find_parts(std::string_view word, RegexBudget& budget, std::vector<Part>& parts) const = 0;

  Behavior behavior_;
};

/// Splits at the matches of a pattern; if `invert`, the text between matches is the delimiter.
class SplitAtPattern : public Split {
 public:
  SplitAtPattern(Regex pattern, Behavior behavior, bool invert)
      : Split(behavior), pattern_(std::move(pattern)), invert_(invert) {}

 private:
  void find_parts(std::string_view word, RegexBudget& budget, std::vector<Part>& parts) const override {
    std::vector<TextRange> matches;
    pattern_.find_all(word, budget, matches);
    std::size_t at = 0;
    for (const TextRange& match : matches) {
      if (at != match.begin) parts.push_back({{at, match.begin}, invert_});
      parts.push_back({match, !invert_});
      at = match.end;
    }
    if (at != word.size()) parts.push_back({{at, word.size()}, invert_});
  }

  Regex pattern_;
  bool invert_;
};

/// Splits at every character for which `is_delimiter` returns true.
class SplitAtCharacters : public Split {
 public:
  SplitAtCharacters(std::function<bool(char32_t)> is_delimiter, Behavior behavior)
      : Split(behavior), is_delimiter_(std::move(is_delimiter)) {}

 private:
  void find_parts(std::string_view word, RegexBudget&, std::vector<Part>& parts) const override {
    std::size_t begin = 0;
    for (std::size_t at = 0, end = 0; at < word.size(); at = end) {
      end = at + utf8_length(word, at);
      if (!is_delimiter_(character_at(word, at))) continue;
      if (begin < at) parts.push_back({{begin, at}, false});
      parts.push_back({{at, end}, true});
      begin = end;
    }
    if (begin < word.size()) parts.push_back({{begin, word.size()}, false});
  }

  std::function<bool(char32_t)> is_delimiter_;
};

/// The component `Whitespace`: splits into sequences of \w characters and sequences of other characters, without
/// whitespace.
class SplitIntoWords : public Split {
 public:
  SplitIntoWords() : Split(Behavior::removed) {}

 private:
  enum class Kind { word, symbol, space };
  static Kind kind_of(char32_t c) {
    if (is_whitespace(c)) return Kind::space;
    return is_word(c) ? Kind::word : Kind::symbol;
  }
  void find_parts(std::string_view word, RegexBudget&, std::vector<Part>& parts) const override {
    for (std::size_t at = 0, end = 0; at < word.size(); at = end) {
      const Kind kind = kind_of(character_at(word, at));
      while (end < word.size() && kind_of(character_at(word, end)) == kind) end += utf8_length(word, end);
      parts.push_back({{at, end}, kind == Kind::space});
    }
  }
};

/// Rewrites every word: appends prefix(word, is_first), where is_first is true if the word begins the input, and
/// then calls append(part, out) for consecutive parts of the word, which appends their new text. Words are divided
/// into parts at the ends of marked ranges.
template <class Prefix, class Append>
void rewrite(WordList& list, const Prefix& prefix, const Append& append) {
  std::string text;
  text.reserve(list.text.size() + list.words.size());
  bool first = list.at_start;
  move_ends(list.marked, [&](std::span<std::size_t> offsets) {
    auto offset = offsets.begin();
    for (TextRange& word : list.words) {
      const std::string_view before = std::string_view(list.text).substr(word.begin, word.end - word.begin);
      const std::size_t begin = text.size();
      for (; offset != offsets.end() && *offset <= word.begin; ++offset) *offset = begin;
      text += prefix(before, std::exchange(first, false));
      std::size_t done = 0;  // bytes of the word that were appended
      for (; offset != offsets.end() && *offset < word.end; ++offset) {
        const std::size_t end = *offset - word.begin;
        append(before.substr(done, end - done), text);
        done = end;
        *offset = text.size();
      }
      append(before.substr(done), text);
      word = {begin, text.size()};
    }
    for (; offset != offsets.end(); ++offset) *offset = text.size();
  });
  list.text = std::move(text);
}

/// Adds a space to each word that does not begin with one: add_prefix_space of ByteLevel.
class PrefixSpace : public PreTokenizer {
 public:
  void apply(WordList& list) const override {
    rewrite(
        list, [](std::string_view word, bool) { return std::string_view(word.starts_with(' ') ? "" : " "); },
        [](std::string_view part, std::string& out) { out += part; });
  }
};

/// The replacement of bytes by characters of a ByteLevel that is not the last step.
class ToByteCharacters : public PreTokenizer {
 public:
  void apply(WordList& list) const override {
    rewrite(
        list, [](std::string_view, bool) { return std::string_view(); },
        [](std::string_view part, std::string& out) { out += byte_characters(part); });
  }
};

enum class PrependScheme { first, never, always };

/// The component Metaspace: replaces every space by a mark, and adds one in front of the text according to `scheme`.
class MarkSpaces : public PreTokenizer {
 public:
  MarkSpaces(std::string mark, PrependScheme scheme) : mark_(std::move(mark)), scheme_(scheme) {}

  void apply(WordList& list) const override {
    const auto prefix = [&](std::string_view word, bool first) {
      const bool prepends = scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && first);
      const bool has_mark = word.starts_with(' ') || word.starts_with(mark_);
      return prepends && !has_mark ? std::string_view(mark_) : std::string_view();
    };
    rewrite(list, prefix, [&](std::string_view part, std::string& out) {
      for (const char c : part) c == ' ' ? out.append(mark_) : out.append(1, c);
    });
  }

 private:
  std::string mark_;
  PrependScheme scheme_;
};

// The pattern of GPT-2 (encoder.py), at which ByteLevel splits.
constexpr const char* gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

template <class Value>
Value one_of(const std::map<std::string, Value>& values, const std::string& name) {
  const auto found = values.find(name);
  require_input(found != values.end(), "{} is not one of the {} allowed values", excerpt(name), values.size());
  return found->second;
}

Behavior behavior_of(const nlohmann::json& json) {
  return one_of<Behavior>({{"Removed", Behavior::removed},
                           {"Isolated", Behavior::isolated},
                           {"MergedWithPrevious", Behavior::merged_with_previous},
                           {"MergedWithNext", Behavior::merged_with_next},
                           {"Contiguous", Behavior::contiguous}},
                          json.at("behavior"));
}

/// Returns the only character of a text. Throws a bad_input Error if it has more or none.
char32_t only_character(const std::string& text) {
  require_input(!text.empty() && utf8_length(text, 0) == text.size(), "{} is not a single character", excerpt(text));
  return character_at(text, 0);
}

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

void add_metaspace(Steps& steps, const nlohmann::json& json) {
  const std::string mark = json.at("replacement");
  const char32_t character = only_character(mark);
  const auto scheme = one_of<PrependScheme>(
      {{"first", PrependScheme::first}, {"never", PrependScheme::never}, {"always", PrependScheme::always}},
      json.value("prepend_scheme", "always"));
  require_input(scheme == PrependScheme::never || json.value("add_prefix_space", true),
                "the pre_tokenizer Metaspace has prepend_scheme and add_prefix_space that contradict each other");
  steps.push_back(std::make_unique<MarkSpaces>(mark, scheme));
  const bool splits = !json.contains("split") || json.at("split").is_null() || json.at("split").get<bool>();
  if (!splits) return;
  steps.push_back(std::make_unique<SplitAtCharacters>([character](char32_t c) { return c == character; },
                                                      Behavior::merged_with_next));
}

void add_steps(Steps& steps, const nlohmann::json& json, bool& to_bytes) {
  const std::string type = json.at("type");
  const auto add = [&]<class Step>(std::unique_ptr<Step> step) { steps.push_back(std::move(step)); };
  if (type == "Sequence") {
    for (const nlohmann::json& one : json.at("pretokenizers")) add_steps(steps, one, to_bytes);
    return;
  }
  if (std::exchange(to_bytes, false)) add(std::make_unique<ToByteCharacters>());
  if (type == "ByteLevel") {
    if (json.at("add_prefix_space").get<bool>()) add(std::make_unique<PrefixSpace>());
    if (json.value("use_regex", true)) {
      add(std::make_unique<SplitAtPattern>(Regex(gpt2_pattern), Behavior::isolated, false));
    }
    to_bytes = true;
  } else if (type == "Split") {
    add(std::make_unique<SplitAtPattern>(read_pattern(json.at("pattern")), behavior_of(json),
                                         json.at("invert").get<bool>()));
  } else if (type == "Digits") {
    const bool each = json.at("individual_digits");
    add(std::make_unique<SplitAtCharacters>(is_numeric, each ? Behavior::isolated : Behavior::contiguous));
  } else if (type == "Punctuation") {
    const Behavior behavior = json.contains("behavior") ? behavior_of(json) : Behavior::isolated;
    add(std::make_unique<SplitAtCharacters>(is_punctuation, behavior));
  } else if (type == "Whitespace") {
    add(std::make_unique<SplitIntoWords>());
  } else if (type == "WhitespaceSplit") {
    add(std::make_unique<SplitAtCharacters>(is_whitespace, Behavior::removed));
  } else if (type == "Metaspace") {
    add_metaspace(steps, json);
  } else {
    fail(ExitCode::bad_input, "the pre_tokenizer {} is not supported", excerpt(type));
  }
}

}  // namespace

PreTokenization read_pre_tokenizer(const nlohmann::json& json) {
  PreTokenization all;
  if (!json.is_null()) add_steps(all.steps, json, all.to_bytes);
  return all;
}

}  // namespace lyceum
