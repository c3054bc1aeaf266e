#include "io/data/tokenizer/tokenizer.h"

#include "support.h"

/// Loads a SentencePiece model, and encodes and decodes a text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::filesystem::path file = fuzz::input_file("tokenizer.model", fuzz::text_of(data, size));
  return fuzz::taken_or_refused([&] {
    const Tokenizer tokenizer(file);
    fuzz::hold(tokenizer.end_of_document() < tokenizer.vocab(), "the end-of-document token is not in the vocabulary");
    const std::vector<std::int32_t> tokens =
        tokenizer.encode("int main() {\n\treturn 0;  }\xFF \xE2\x96\x81 na\xC3\xAFve\n");
    tokenizer.decode(tokens);
  });
}
