#include "io/data/tokenizer/json/tokenizer_json.h"

#include "support.h"

/// Loads a tokenizer.json, and encodes and decodes texts with and without a cache of words.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  return fuzz::taken_or_refused([&] {
    const TokenizerJson tokenizer(fuzz::text_of(data, size), "tokenizer.json");
    fuzz::hold(tokenizer.end_of_document() < tokenizer.vocab(), "a token is not in the vocabulary");
    WordCache words;
    for (const char* text :
         {"int main() {\n\treturn 0;  }\xFF na\xC3\xAFve\n", "A  Be\xCC\x81 \xF0\x9F\x99\x82 12345 </s>\r\n "}) {
      std::vector<std::int32_t> ids, remembered;
      tokenizer.encode(text, {}, nullptr, ids);
      for (int round = 0; round < 2; ++round) {
        remembered.clear();
        tokenizer.encode(text, {}, &words, remembered);
        fuzz::hold(remembered == ids, "cached words have different tokens");
      }
      for (const std::int32_t id : ids)
        fuzz::hold(id >= 0 && id < tokenizer.vocab(), "a token is not in the vocabulary");
      tokenizer.decode(ids);
    }
  });
}
