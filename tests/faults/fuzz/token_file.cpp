#include <array>

#include "io/data/loader/token_loader.h"
#include "io/data/tokens/token_formats.h"
#include "io/data/tokens/unigram_entropy.h"
#include "support.h"

/// Opens token files. The first two bytes of the input are the length of the .idx file, which follows, then the .bin.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::string_view bytes = fuzz::text_of(data, size);
  if (size < 2) return 0;
  const std::size_t index_bytes = data[0] + std::size_t{256} * data[1];
  const std::string_view index = bytes.substr(2, index_bytes);
  fuzz::input_file("tokens.idx", index);
  fuzz::input_file("tokens.bin", bytes.substr(2 + index.size()));
  return fuzz::taken_or_refused([&] {
    const auto file = open_tokens((fuzz::folder() / "tokens").string());
    for (std::int64_t d = 0; d < file->documents(); ++d) {
      fuzz::hold(file->document_begin(d) <= file->document_begin(d + 1), "a document has a negative length");
    }
    fuzz::hold(file->document_begin(0) == 0 && file->document_begin(file->documents()) == file->tokens(),
               "documents do not fill the file");
    file->fingerprint();
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file->tokens()));
    fuzz::refused([&] { file->read(0, tokens); });
    fuzz::refused([&] { unigram_entropy(*file, 0, file->tokens()); });
    const std::int64_t seq_len = 3, samples = samples_in(file->tokens(), seq_len);
    const TokenLoader loader(file, SampleOrder(SampleOrder::Kind::shuffled, 1, 0, samples), seq_len);
    std::array<std::int32_t, 6> inputs{}, targets{};
    if (samples > 0) loader.load(5, 2, 1 << 16, {inputs, targets});
  });
}
