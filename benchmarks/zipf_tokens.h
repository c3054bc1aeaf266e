#pragma once

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/random.h"
#include "io/data/tokens/megatron_writer.h"

namespace lyceum {

/// Writes `count` tokens with the frequencies of words in a text (Zipf), so that experts and embedding rows are used
/// unevenly. Returns the prefix of the files in `directory`.
inline std::string write_tokens(const std::filesystem::path& directory, std::int64_t vocab, std::int64_t count) {
  const std::string prefix = (directory / "tokens").string();
  MegatronWriter writer(prefix, vocab);
  const Philox random(3, "benchmark tokens");
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const double rank = std::pow(static_cast<double>(vocab), random.uniform(static_cast<std::uint64_t>(i)));
    tokens.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(vocab - 1, static_cast<std::int64_t>(rank) - 1)));
  }
  writer.add_document(tokens);
  writer.finish();
  return prefix;
}

}  // namespace lyceum
