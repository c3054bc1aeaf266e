#include "io/data/tokens/unigram_entropy.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace lyceum {

double unigram_entropy(const TokenSource& source, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t most_tokens = std::int64_t{1} << 24;
  require(count > 0, "the entropy of {} tokens is not defined", count);
  std::vector<std::int64_t> counts;
  std::vector<std::int32_t> chunk(std::size_t{1} << 16);
  for (std::int64_t at = first; at < first + count; at += static_cast<std::int64_t>(chunk.size())) {
    chunk.resize(std::min(chunk.size(), static_cast<std::size_t>(first + count - at)));
    source.read(at, chunk);
    const auto [least, most] = std::ranges::minmax(chunk);
    require_input(least >= 0 && most < most_tokens, "{}: token {} is not in any vocabulary", source.path(),
                  least < 0 ? least : most);
    counts.resize(std::max(counts.size(), static_cast<std::size_t>(most) + 1));
    for (const std::int32_t token : chunk) ++counts[static_cast<std::size_t>(token)];
  }
  double entropy = 0;
  for (const std::int64_t n : counts) {
    const double p = static_cast<double>(n) / static_cast<double>(count);
    if (n > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace lyceum
