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

/// A part of a piece: a delimiter or the text between two delimiters.
struct Part {
  TextRange range;
  bool delimiter;
};

/// Joins the parts of a piece, which cover it, into new pieces. Reverses the order of `parts` while it works.
void join_parts(std::vector<Part>& parts, Behavior behavior, std::vector<TextRange>& pieces) {
  pieces.clear();
  const bool from_the_end = behavior == Behavior::merged_with_next;
  if (from_the_end) std::ranges::reverse(parts);
  bool previous = false;  // the previous part was a delimiter
  for (const Part& part : parts) {
    const bool joins =
        behavior == Behavior::contiguous
            ? part.delimiter == previous
            : (behavior == Behavior::merged_with_previous || from_the_end) && part.delimiter && !previous;
    previous = part.delimiter;
    if (behavior == Behavior::removed && part.delimiter) continue;
    if (!joins || pieces.empty()) {
      pieces.push_back(part.range);
    } else if (from_the_end) {
      pieces.back().begin = part.range.begin;
    } else {
      pieces.back().end = part.range.end;
    }
  }
  if (from_the_end) std::ranges::reverse(pieces);
}

/// Splits every piece at delimiters, which derived classes find.
class Split : public PreTokenizer {
 public:
  explicit Split(Behavior behavior) : behavior_(behavior) {}

  void apply(PieceList& list) const override {
    std::vector<TextRange> made, pieces;
    std::vector<Part> parts;
    made.reserve(list.text.size() / 4);
    bool keeps_start = false;
    for (const TextRange& piece : list.pieces) {
      parts.clear();
      find_parts(std::string_view(list.text).substr(piece.begin, piece.end - piece.begin), list.budget, parts);
      join_parts(parts, behavior_, pieces);
      for (const TextRange& part : pieces) {
        if (part.begin == part.end) continue;
        if (made.empty()) keeps_start = &piece == &list.pieces.front() && part.begin == 0;
        made.push_back({piece.begin + part.begin, piece.begin + part.end});
      }
    }
    list.at_start = list.at_start && keeps_start;
    list.pieces = std::move(made);
  }

 private:
  /// Appends the parts of a piece, which must cover it. The piece is not empty.
  virtual void find_parts(std::string_view piece, RegexBudget& budget, std::vector<Part>& parts) const = 0;

  Behavior behavior_;
};

/// Splits at the matches of a pattern; if `invert`, the text between matches is the delimiter.
class SplitAtPattern : public Split {
 public:
  SplitAtPattern(Regex pattern, Behavior behavior, bool invert)
      : Split(behavior), pattern_(std::move(pattern)), invert_(invert) {}

 private:
  void find_parts(std::string_view piece, RegexBudget& budget, std::vector<Part>& parts) const override {
    std::vector<TextRange> matches;
    pattern_.find_all(piece, budget, matches);
    std::size_t at = 0;
    for (const TextRange& match : matches) {
      if (at != match.begin) parts.push_back({{at, match.begin}, invert_});
      parts.push_back({match, !invert_});
      at = match.end;
    }
    if (at != piece.size()) parts.push_back({{at, piece.size()}, invert_});
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
  void find_parts(std::string_view piece, RegexBudget&, std::vector<Part>& parts) const override {
    std::size_t begin = 0;
    for (std::size_t at = 0, end = 0; at < piece.size(); at = end) {
      end = at + utf8_length(piece, at);
      if (!is_delimiter_(character_at(piece, at))) continue;
      if (begin < at) parts.push_back({{begin, at}, false});
      parts.push_back({{at, end}, true});
      begin = end;
    }
    if (begin < piece.size()) parts.push_back({{begin, piece.size()}, false});
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
  static Kind kind_of(char32_t c) { return is_whitespace(c) ? Kind::space : is_word(c) ? Kind::word : Kind::symbol; }
  void find_parts(std::string_view piece, RegexBudget&, std::vector<Part>& parts) const override {
    for (std::size_t at = 0, end = 0; at < piece.size(); at = end) {
      const Kind kind = kind_of(character_at(piece, at));
      while (end < piece.size() && kind_of(character_at(piece, end)) == kind) end += utf8_length(piece, end);
      parts.push_back({{at, end}, kind == Kind::space});
    }
  }
};

/// Rewrites every piece: appends prefix(piece, is_first), where is_first is true if the piece begins the input, and
/// then calls append(part, out) for consecutive parts of the piece, which appends their new text. Pieces are divided
/// into parts at the ends of marked ranges.
template <class Prefix, class Append>
void rewrite(PieceList& list, const Prefix& prefix, const Append& append) {
  std::string text;
  text.reserve(list.text.size() + list.pieces.size());
  bool first = list.at_start;
  move_ends(list.marked, [&](std::span<std::size_t> places) {
    auto place = places.begin();
    for (TextRange& piece : list.pieces) {
      const std::string_view before = std::string_view(list.text).substr(piece.begin, piece.end - piece.begin);
      const std::size_t begin = text.size();
      for (; place != places.end() && *place <= piece.begin; ++place) *place = begin;
      text += prefix(before, std::exchange(first, false));
      std::size_t done = 0;  // bytes of the piece that were appended
      for (; place != places.end() && *place < piece.end; ++place) {
        const std::size_t end = *place - piece.begin;
        append(before.substr(done, end - done), text);
        done = end;
        *place = text.size();
      }
      append(before.substr(done), text);
      piece = {begin, text.size()};
    }
    for (; place != places.end(); ++place) *place = text.size();
  });
  list.text = std::move(text);
}

/// Adds a space to each piece that does not begin with one: add_prefix_space of ByteLevel.
class PrefixSpace : public PreTokenizer {
 public:
  void apply(PieceList& list) const override {
    rewrite(
        list, [](std::string_view piece, bool) { return std::string_view(piece.starts_with(' ') ? "" : " "); },
        [](std::string_view part, std::string& out) { out += part; });
  }
};

/// The replacement of bytes by characters of a ByteLevel that is not the last step.
class ToByteCharacters : public PreTokenizer {
 public:
  void apply(PieceList& list) const override {
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

  void apply(PieceList& list) const override {
    const auto prefix = [&](std::string_view piece, bool first) {
      const bool prepends = scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && first);
      const bool has_mark = piece.starts_with(' ') || piece.starts_with(mark_);
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
