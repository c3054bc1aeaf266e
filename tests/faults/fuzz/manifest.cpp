#include "io/checkpoint/manifest.h"

#include "io/checkpoint/read.h"
#include "support.h"

/// Reads manifest.json of a checkpoint as it is, and with the digest at its end corrected.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::string_view text = fuzz::text_of(data, size);
  const auto read = [](std::string_view manifest) {
    fuzz::input_file(manifest_name, manifest);
    return read_manifest(fuzz::folder());
  };
  fuzz::taken_or_refused([&] { read(text); });
  return fuzz::taken_or_refused([&] {
    constexpr std::string_view key = "\"manifest_sha256\": ";
    const std::string body(text.substr(0, text.rfind(key)));
    const Manifest manifest = read(body + std::string(key) + '"' + sha256(body) + "\"\n}\n");
    const std::string written = manifest_text(manifest);
    coverage_problem(manifest);
    const CheckpointReader reader(fuzz::folder());
    reader.problem();
    fuzz::refused([&] { reader.tokenizer(); });
    fuzz::hold(manifest_text(read(written)) == written, "a manifest changes when it is written and read");
  });
}
