#include "io/run/gemm_file.h"

#include <nlohmann/json.hpp>

#include "io/files/sha256.h"
#include "support.h"

/// Parses gemm.json as it is, and with the digest corrected.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::string text(fuzz::text_of(data, size));
  fuzz::refused([&] { parse_gemm_file(text, "input"); });
  constexpr std::size_t longest = 4096;  // dump() of nlohmann is recursive, and is not tested here
  if (size > longest) return 0;
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("choices")) return 0;
  json["sha256"] = sha256(json["choices"].dump());
  return fuzz::taken_or_refused([&] {
    const GemmPins pins = parse_gemm_file(json.dump(), "input");
    const std::string written = gemm_file_text(pins);
    choices_text(pins);
    fuzz::hold(gemm_file_text(parse_gemm_file(written, "what was written")) == written, "choices change");
  });
}
