#include "io/data/encoding/choice_tokens.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "core/utf8.h"
#include "io/data/tokenizer/unicode.h"

namespace lyceum {

namespace {

bool begins_with(std::span<const std::int32_t> tokens, std::span<const std::int32_t> first) {
  return tokens.size() >= first.size() && std::ranges::equal(tokens.first(first.size()), first);
}

}  // namespace

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;  // continuation bytes
    const char32_t last = character_at(text, at);
    const bool separator = last >= 0x1C && last <= 0x1F;  // white space for Python, but not for Unicode
    if (!separator && !is_whitespace(last)) break;
    text = text.substr(0, at);
  }
  return text;
}

std::vector<std::int32_t> encode_context(const Tokenizer& tokenizer, std::string_view text, const ContextStart& start) {
  std::vector<std::int32_t> tokens = tokenizer.encode(text);
  const bool begun = begins_with(tokens, start.added) || begins_with(tokens, std::span(&start.prefix, 1));
  if (!begun) tokens.insert(tokens.begin(), start.added.begin(), start.added.end());
  return tokens;
}

ChoiceTokens encode_choice(const Tokenizer& tokenizer, std::string_view context, std::string_view choice,
                           const ContextStart& start) {
  const std::string_view before = without_trailing_space(context);
  const std::string both = std::string(context).append(choice);
  if (before.empty()) {
    ChoiceTokens tokens{.context = {start.prefix}, .choice = tokenizer.encode(both)};
    if (begins_with(tokens.choice, tokens.context)) tokens.choice.erase(tokens.choice.begin());
    return tokens;
  }
  ChoiceTokens tokens{.context = encode_context(tokenizer, before, start),
                      .choice = encode_context(tokenizer, both, start)};
  const std::size_t shared = std::min(tokens.context.size(), tokens.choice.size());
  tokens.choice.erase(tokens.choice.begin(), tokens.choice.begin() + static_cast<std::ptrdiff_t>(shared));
  return tokens;
}

}  // namespace lyceum
