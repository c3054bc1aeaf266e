#include "io/routing/token_log.h"

#include "io/routing/difficult.h"
#include "support.h"

/// Reads a file that `lyceum eval --token-log` writes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  fuzz::reuse_hdf5_memory();
  const std::filesystem::path file = fuzz::input_file("tokens.h5", fuzz::text_of(data, size));
  return fuzz::taken_or_refused([&] {
    const TokenLogFile log(file);
    difficult_text(difficult_tokens(log, log, {}), true);
  });
}
