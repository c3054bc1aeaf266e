#include "io/data/tokens/token_meta.h"

#include "support.h"

/// Reads PREFIX.json of token files, and writes it again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::string prefix = (fuzz::folder() / "meta").string();
  fuzz::input_file("meta.json", fuzz::text_of(data, size));
  return fuzz::taken_or_refused([&] {
    const std::optional<TokenMeta> meta = read_token_meta(prefix);
    write_token_meta(prefix, meta.value());
    fuzz::hold(read_token_meta(prefix) == meta, "a description of tokens changes when it is written and read");
  });
}
