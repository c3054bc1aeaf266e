#include "io/data/tokenizer/json/added_tokens.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "io/data/tokenizer/unicode.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// Returns the offset of the character before text[at].
std::size_t before(std::string_view text, std::size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u);
  return at;
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(character_at(text, before(text, text.size())));
}
bool starts_with_word(std::string_view text) { return !text.empty() && is_word(character_at(text, 0)); }

/// Returns the end of the whitespace that begins at `at`.
std::size_t skip_right(std::string_view text, std::size_t at) {
  while (at < text.size() && is_whitespace(character_at(text, at))) at += utf8_length(text, at);
  return at;
}
/// Returns the beginning of the whitespace that ends at `at`, but at least `first`.
std::size_t skip_left(std::string_view text, std::size_t at, std::size_t first) {
  while (at > first && is_whitespace(character_at(text, before(text, at)))) at = before(text, at);
  return at;
}

}  // namespace

AddedTokens::AddedTokens(const nlohmann::json& json, const Vocabulary& model,
                         const std::vector<Normalizer>& normalizers) {
  auto next = static_cast<std::int64_t>(model.size());  // the id of the next token that the model does not have
  std::vector<std::pair<std::string, std::int32_t>> raw, after;
  for (const nlohmann::json& entry : json) {
    Token token{.id = exact_value<std::int32_t>(entry.at("id")),
                .content = entry.at("content"),
                .decoded = {},
                .single_word = entry.at("single_word"),
                .strips_left = entry.at("lstrip"),
                .strips_right = entry.at("rstrip"),
                .normalized = entry.at("normalized"),
                .special = entry.at("special")};
    require_input(!token.content.empty() && ids_.emplace(token.content, token.id).second,
                  "the added token {} is empty or occurs twice", excerpt(token.content));
    const std::optional<std::int32_t> known = model.id(token.content);
    const std::int64_t own = known ? *known : next++;
    require_input(own == token.id, "the added token {} has the id {}, but its position requires {}",
                  excerpt(token.content), token.id, own);
    require_input(own < Vocabulary::most_ids, "the added token {} has the id {}: ids are 0 to {}",
                  excerpt(token.content), own, Vocabulary::most_ids - 1);
    token.decoded = token.content;
    if (token.normalized) {
      RegexBudget budget(token.content.size());
      for (const Normalizer& normalize : normalizers) token.decoded = normalize(token.decoded, budget, {});
      require_input(!token.decoded.empty(), "the added token {} is empty after normalisation", excerpt(token.content));
    }
    (token.normalized ? after : raw).emplace_back(token.decoded, static_cast<std::int32_t>(tokens_.size()));
    tokens_.push_back(std::move(token));
  }
  for (auto* keys : {&raw, &after}) {
    std::ranges::sort(*keys);
    const auto twice = std::ranges::adjacent_find(*keys, {}, &std::pair<std::string, std::int32_t>::first);
    require_input(twice == keys->end(), "two added tokens are {} after normalisation",
                  twice == keys->end() ? "" : excerpt(twice->first));
  }
  raw_ = Trie(std::move(raw));
  normalized_ = Trie(std::move(after));
}

std::optional<std::int32_t> AddedTokens::id(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<TextSegment> AddedTokens::split(std::string_view text, Pass pass) const {
  const Trie& trie = pass == Pass::raw ? raw_ : normalized_;
  std::vector<TextSegment> segments;
  std::size_t done = 0;  // end of the last added token
  for (std::size_t at = 0; at < text.size();) {
    std::size_t bytes = 0;
    std::int32_t index = 0;
    if (trie.begins(text[at])) {
      trie.prefixes(text.substr(at), [&](std::size_t length, std::int32_t value) {
        bytes = length;
        index = value;
      });
    }
    if (bytes == 0) {
      ++at;
      continue;
    }
    const Token& token = tokens_[static_cast<std::size_t>(index)];
    std::size_t begin = at, end = at + bytes;
    at = end;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.strips_left) begin = std::max(skip_left(text, begin, 0), done);
    if (token.strips_right) end = skip_right(text, end);
    require_input(begin <= end,
                  "the added token {} is within the whitespace that belongs to the token before it, where `tokenizers` "
                  "fails: set its lstrip to false",
                  excerpt(token.content));
    if (done < begin) segments.push_back({text.substr(done, begin - done), std::nullopt});
    if (begin < end) segments.push_back({text.substr(begin, end - begin), token.id});  // else the token before has it
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done), std::nullopt});
  return segments;
}

}  // namespace lyceum
