#include "io/data/tokenizer/tokenizer.h"
#include "io/text/utf8.h"
#include "io/text/words.h"
#include "support.h"

/// Encodes and decodes a text. The result must be equal unless the text is not UTF-8 or contains U+2581, by which the
/// tokenizer represents spaces.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  static const Tokenizer tokenizer(LYCEUM_CORPUS "/tokenizer/small.model");
  const std::string_view text = fuzz::text_of(data, size);
  looks_like_text(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_word(text, at);
    fuzz::hold(end > at && end <= text.size(), "a word is empty or extends beyond the text");
    at = end;
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    fuzz::hold(at + utf8_length(text, at) <= text.size(), "a character extends beyond the text");
  }
  const std::vector<std::int32_t> tokens = tokenizer.encode(text);
  const bool kept = is_utf8(text) && text.find("\xE2\x96\x81") == std::string_view::npos;
  fuzz::hold(!kept || tokenizer.decode(tokens) == text, "decoding does not restore the text");
  std::vector<std::int32_t> by_words;
  TextEncoder(tokenizer).encode(text, by_words);
  fuzz::hold(by_words == tokens, "encoding word by word gives different tokens");
  return 0;
}
