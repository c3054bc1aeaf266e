#include "io/data/tokenizer/json/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "io/data/tokenizer/json/added_tokens.h"
#include "io/data/tokenizer/json/byte_characters.h"
#include "io/data/tokenizer/json/decoder.h"
#include "io/data/tokenizer/json/normalizer.h"
#include "io/data/tokenizer/json/pipeline.h"
#include "io/data/tokenizer/json/post_processor.h"
#include "io/data/tokenizer/json/pre_tokenizer.h"
#include "io/data/tokenizer/json/regex_shape.h"
#include "io/data/tokenizer/json/subword_model.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// Returns a member of an object; null if it is missing.
const nlohmann::json& member(const nlohmann::json& json, const char* key) {
  static const nlohmann::json null;
  return json.contains(key) ? json.at(key) : null;
}

/// The marked ranges of a text during encoding, and the marks of the ids so far.
struct Marking {
  std::vector<TextRange> ranges;  // ranges of the text in its current form
  std::vector<std::uint8_t>& marks;
};

/// Returns the parts of the ranges that are within `part`, relative to its beginning.
std::vector<TextRange> ranges_within(std::span<const TextRange> ranges, TextRange part) {
  std::vector<TextRange> within;
  for (auto range = std::ranges::upper_bound(ranges, part.begin, {}, &TextRange::end);
       range != ranges.end() && range->begin < part.end; ++range) {
    const std::size_t begin = std::max(range->begin, part.begin), end = std::min(range->end, part.end);
    if (begin < end) within.push_back({begin - part.begin, end - part.begin});
  }
  return within;
}

/// Returns the range of `part`, which is a view of a part of `text`.
TextRange range_of(std::string_view part, std::string_view text) {
  const auto begin = static_cast<std::size_t>(part.data() - text.data());
  return {begin, begin + part.size()};
}

/// Returns the place between two words or two lines at text[at], or no place. Neither word nor line is empty.
CutPlaces place_at(std::string_view text, std::size_t at) {
  const char before = text[at - 1], after = text[at];
  if (after == ' ') {
    return {.words = is_ascii_letter(before) && at + 1 < text.size() && is_ascii_letter(text[at + 1])};
  }
  return {.lines = before == '\n' && may_begin_part(after) && at > 1 && text[at - 2] > ' ' && text[at - 2] < 0x7F};
}

}  // namespace

struct TokenizerJson::Implementation {
  std::vector<Normalizer> normalizers;
  PreTokenization pre_tokenization;
  std::unique_ptr<SubwordModel> model;
  AddedTokens added;
  std::vector<Decoder> decoders;
  std::vector<std::string> texts;  // the text of each id, the input of decoders
  std::vector<bool> absent;        // ids without a token
  std::vector<bool> skipped;       // ids that decoding leaves out by default: without a token, or special
  AddedAround around;
  std::int32_t end = -1;
  CutPlaces spanned;  // places that a token or a match of a pattern may extend over
  /// Bytes on each side of a cut that are encoded to verify it: at least twice the length of every added token.
  std::size_t cut_context = 1024;

  explicit Implementation(const nlohmann::json& json)
      : normalizers(read_normalizers(member(json, "normalizer"))),
        pre_tokenization(read_pre_tokenizer(member(json, "pre_tokenizer"))),
        model(read_subword_model(json.at("model"))),
        added(member(json, "added_tokens"), model->vocabulary(), normalizers),
        decoders(read_decoders(member(json, "decoder"))) {
    require_known(json);
    require_known_positions(member(json, "normalizer"), member(json, "pre_tokenizer"));
    require_input(model->vocabulary().size() > 0, "the model has no tokens");
    read_texts();
    find_spanned_places(json);
    const TokenIds ids = [this](std::string_view token) { return id_of(token); };
    around = lyceum::added_around(member(json, "post_processor"), ids);
    end = end_of_text(around, ids);
  }

  /// Rejects the members that `tokenizers` rejects. `truncation` and `padding` are ignored: documents are encoded
  /// whole.
  static void require_known(const nlohmann::json& json) {
    constexpr std::array known{"version",       "truncation",     "padding", "added_tokens", "normalizer",
                               "pre_tokenizer", "post_processor", "decoder", "model"};
    for (const auto& [key, value] : json.items()) {
      require_input(std::ranges::find(known, key) != known.end(), "it has the unknown member {}", excerpt(key));
    }
    require_input(!json.contains("version") || json.at("version") == "1.0", "its version is {}, not 1.0",
                  excerpt(json_text(member(json, "version"))));
  }

  /// Returns a text after the normalizers.
  std::string normalized(std::string text) const {
    RegexBudget budget(text.size());
    for (const Normalizer& normalize : normalizers) text = normalize(text, budget, {});
    return text;
  }

  /// Returns a text as all steps change it before it is split into words for the model.
  std::string changed(std::string text) const {
    text = normalized(std::move(text));
    RegexBudget budget(text.size());
    WordList list{.text = text, .words = {{0, text.size()}}, .at_start = true, .budget = budget};
    for (const auto& step : pre_tokenization.steps) step->apply(list);
    return list.text;
  }

  /// True if the words of a part of a document are words of the document: nothing is added in front of a text, and
  /// there is a pre-tokenizer.
  bool can_cut() const { return !pre_tokenization.steps.empty() && changed("a") == "a"; }

  /// Sets `spanned` and `cut_context`. Tokens and matches that extend over words or lines, as in SuperBPE, may cover
  /// the offsets at which cut() would cut.
  void find_spanned_places(const nlohmann::json& json) {
    if (!can_cut()) return;
    const auto add = [this](CutPlaces places) { spanned = spanned | places; };
    const bool changes = changed("a a\na") != "a a\na";  // such as a ByteLevel that is not the last step
    add(spans_of_patterns(member(json, "normalizer"), member(json, "pre_tokenizer"),
                          changes ? all_space_forms() : SpaceForms()));
    // A token extends over what it contains in the form in which it is compared with the text.
    const auto of_model = [this](std::string text) {
      text = changed(std::move(text));
      return pre_tokenization.to_bytes ? byte_characters(text) : text;
    };
    const auto [model_forms, of_models] = forms_by(of_model);
    const auto [normal_forms, of_normalized] =
        forms_by([this](std::string text) { return normalized(std::move(text)); });
    add(of_models);
    for (const std::string& token : model->vocabulary().tokens()) add(spans_of(token, model_forms));
    for (const AddedTokens::Token& token : added.tokens()) {
      if (token.normalized) add(of_normalized);
      add(token.normalized ? spans_of(token.decoded, normal_forms) : spans_of(token.content, {}));
      cut_context = std::max(cut_context, 2 * token.content.size());
    }
  }

  /// Returns the forms that change(text) gives to a space and a newline between letters, and the places at which that
  /// is not one character, so that tokens are not compared.
  template <class Change>
  static std::pair<SpaceForms, CutPlaces> forms_by(const Change& change) {
    const auto form = [&](const char* before) {
      const std::string text = change(before);
      const bool one =
          text.size() > 2 && text.starts_with('a') && utf8_length(text, 1) == text.size() - 2 && text.ends_with('a');
      return one ? std::vector{text.substr(1, text.size() - 2)} : std::vector<std::string>();
    };
    SpaceForms forms{.spaces = form("a a"), .newlines = form("a\na")};
    const CutPlaces unknown{.words = forms.spaces.empty(), .lines = forms.newlines.empty()};
    return {std::move(forms), unknown};
  }

  /// True if the text around an offset has the same ids when it is cut there.
  bool same_when_cut(std::string_view text, std::size_t at) const {
    const std::size_t begin = at - std::min(at, cut_context);
    const auto ids_of = [&](std::initializer_list<std::string_view> parts) {
      std::vector<std::int32_t> ids;
      for (const std::string_view part : parts) encode(part, {}, nullptr, ids);
      return ids;
    };
    const std::string_view before = text.substr(begin, at - begin), after = text.substr(at, cut_context);
    try {
      return ids_of({text.substr(begin, before.size() + after.size())}) == ids_of({before, after});
    } catch (const Error&) {  // the text cannot be encoded
      return false;
    }
  }

  void read_texts() {
    texts = model->vocabulary().tokens();
    skipped.resize(texts.size());
    for (std::size_t id = 0; id < texts.size(); ++id) {
      skipped[id] = !model->vocabulary().contains(static_cast<std::int64_t>(id));
    }
    std::unordered_set<std::string> special;
    for (const AddedTokens::Token& token : added.tokens()) {
      const auto id = static_cast<std::size_t>(token.id);
      if (id >= texts.size()) {
        texts.resize(id + 1);
        skipped.resize(id + 1, true);
      }
      texts[id] = token.decoded;
      skipped[id] = false;
      if (token.special) special.insert(token.content);
    }
    absent = skipped;
    for (std::size_t id = 0; id < texts.size(); ++id) skipped[id] = skipped[id] || special.contains(texts[id]);
  }

  std::optional<std::int32_t> id_of(std::string_view token) const {
    const std::optional<std::int32_t> id = added.id(token);
    return id ? id : model->vocabulary().id(token);
  }

  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (pre_tokenization.to_bytes) {
      model->encode(byte_characters(word), ids);
    } else {
      model->encode(word, ids);
    }
  }

  /// Appends the marks of `ids`, which are those of a word of `list`.
  void mark(const WordList& list, TextRange word, std::span<const std::int32_t> ids,
            std::vector<std::uint8_t>& marks) const {
    std::vector<TextRange> ranges = ranges_within(list.marked, word);
    if (ranges.empty() || ranges.front() == TextRange{0, word.end - word.begin}) {
      marks.resize(marks.size() + ids.size(), ranges.empty() ? 0 : 1);
      return;
    }
    std::string text = list.text.substr(word.begin, word.end - word.begin);
    if (pre_tokenization.to_bytes) {
      for (TextRange& range : ranges) {
        range = {byte_characters(text.substr(0, range.begin)).size(),
                 byte_characters(text.substr(0, range.end)).size()};
      }
      text = byte_characters(text);
    }
    std::size_t begin = 0;
    for (const std::size_t end : model->ends_of(text, ids)) {
      marks.push_back(overlaps(ranges, {std::exchange(begin, end), end}) ? 1 : 0);
    }
  }

  /// Encodes text without added tokens. `at_start`: it is at the beginning of the document.
  void encode_segment(std::string_view text, bool at_start, RegexBudget& budget, WordCache* words,
                      std::vector<std::int32_t>& ids, Marking* marking) const {
    WordList list{.text = std::string(text), .words = {{0, text.size()}}, .at_start = at_start, .budget = budget};
    if (marking) list.marked = marking->ranges;
    for (const auto& step : pre_tokenization.steps) step->apply(list);
    for (const TextRange& range : list.words) {
      const std::string_view word = std::string_view(list.text).substr(range.begin, range.end - range.begin);
      const std::size_t before = ids.size();
      if (words == nullptr) {
        encode_word(word, ids);
      } else {
        words->append(word, ids, [&](std::string_view w, std::vector<std::int32_t>& out) { encode_word(w, out); });
      }
      if (marking) mark(list, range, std::span(ids).subspan(before), marking->marks);
    }
  }

  /// Splits a text at added tokens and appends their ids. Calls rest(text, marking) for the text between them, where
  /// `marking` has the ranges within it, or is null.
  template <class Rest>
  void encode_added(std::string_view text, AddedTokens::Pass pass, std::vector<std::int32_t>& ids, Marking* marking,
                    const Rest& rest) const {
    for (const TextSegment& segment : added.split(text, pass)) {
      const TextRange range = range_of(segment.text, text);
      if (segment.token) {
        ids.push_back(*segment.token);
        if (marking) marking->marks.push_back(overlaps(marking->ranges, range) ? 1 : 0);
      } else if (marking) {
        Marking within{.ranges = ranges_within(marking->ranges, range), .marks = marking->marks};
        rest(segment.text, &within);
      } else {
        rest(segment.text, nullptr);
      }
    }
  }

  std::string normalize(std::string_view text, RegexBudget& budget, Marking* marking) const {
    std::string normal(text);
    const auto run = [&](std::span<std::size_t> offsets) {
      for (const Normalizer& step : normalizers) normal = step(normal, budget, offsets);
    };
    marking ? move_ends(marking->ranges, run) : run({});
    return normal;
  }

  void encode(std::string_view text, TextPart part, WordCache* words, std::vector<std::int32_t>& ids) const {
    if (is_utf8(text)) {
      encode_valid(text, part, words, ids, nullptr);
    } else {
      encode_valid(replace_invalid_utf8(text), part, words, ids, nullptr);
    }
  }

  void encode_valid(std::string_view text, TextPart part, WordCache* words, std::vector<std::int32_t>& ids,
                    Marking* marking) const {
    RegexBudget budget(text.size());
    encode_added(text, AddedTokens::Pass::raw, ids, marking, [&](std::string_view raw, Marking* of_raw) {
      const bool begins = part.begins && raw.data() == text.data();
      const std::string normal = normalize(raw, budget, of_raw);
      encode_added(normal, AddedTokens::Pass::normalized, ids, of_raw,
                   [&](std::string_view segment, Marking* of_segment) {
                     encode_segment(segment, begins && segment.data() == normal.data(), budget, words, ids, of_segment);
                   });
    });
  }
};

TokenizerJson::TokenizerJson(std::string_view json, const std::string& name) {
  try {
    require_shallow(json);
    implementation_ = std::make_unique<Implementation>(nlohmann::json::parse(json));
  } catch (const Error& error) {
    fail(ExitCode::bad_input, "{} cannot be used: {}", name, error.what());
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::bad_input, "{} is not a tokenizer.json: {}", name, excerpt(error.what(), 200));
  }
}

TokenizerJson::~TokenizerJson() = default;
TokenizerJson::TokenizerJson(TokenizerJson&&) noexcept = default;

std::int64_t TokenizerJson::vocab() const { return std::ssize(implementation_->texts); }
std::int32_t TokenizerJson::end_of_document() const { return implementation_->end; }
const AddedAround& TokenizerJson::added_around() const { return implementation_->around; }

void TokenizerJson::encode(std::string_view text, TextPart, WordCache* words, std::vector<std::int32_t>& ids) const {
  implementation_->encode(text, {}, words, ids);
}

std::size_t TokenizerJson::cut(std::string_view text) const {
  const Implementation& own = *implementation_;
  if (text.size() < own.cut_context || !own.can_cut()) return 0;
  std::size_t tries = 0;
  for (std::size_t at = text.size() - own.cut_context; at > 1; --at) {
    const CutPlaces place = place_at(text, at);
    if (!(place.words && !own.spanned.words) && !(place.lines && !own.spanned.lines)) continue;
    if (own.same_when_cut(text, at)) return at;
    // Each try is further away from the last, so the time is bounded.
    at -= std::min(at - 1, 8 * ++tries);
  }
  return 0;
}

void TokenizerJson::encode(const MarkedText& text, TextPart part, WordCache* words, std::vector<std::int32_t>& ids,
                           std::vector<std::uint8_t>& marks) const {
  require_input(is_utf8(text.text), "a text with marked ranges is not UTF-8");
  Marking marking{.ranges = {text.marked.begin(), text.marked.end()}, .marks = marks};
  implementation_->encode_valid(text.text, part, words, ids, &marking);
}

std::optional<std::int32_t> TokenizerJson::id(std::string_view token) const { return implementation_->id_of(token); }

std::string TokenizerJson::decode(std::span<const std::int32_t> ids, bool show_special) const {
  const Implementation& own = *implementation_;
  std::vector<std::string> texts;
  for (const std::int32_t id : ids) {
    const auto at = static_cast<std::size_t>(id);
    if (!(show_special ? own.absent : own.skipped)[at]) texts.push_back(own.texts[at]);
  }
  for (const Decoder& decode : own.decoders) texts = decode(std::move(texts));
  std::string text;
  for (const std::string& one : texts) {
    if (own.decoders.empty() && &one != &texts.front()) text += ' ';
    text += one;
  }
  return text;
}

}  // namespace lyceum
