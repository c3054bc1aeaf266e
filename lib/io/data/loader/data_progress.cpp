#include "io/data/loader/data_progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace lyceum {

namespace {

/// Returns the sample with which a source continues that is now cut into `per_pass` samples.
std::int64_t next_sample(const SourceProgress& progress, std::int64_t per_pass) {
  if (progress.per_pass == per_pass) return progress.samples;
  const std::int64_t passes = progress.samples / progress.per_pass, rest = progress.samples % progress.per_pass;
  const double share = static_cast<double>(rest) / static_cast<double>(progress.per_pass);
  const double samples = std::ceil(share * static_cast<double>(per_pass));
  return passes * per_pass + std::min(per_pass, static_cast<std::int64_t>(samples));
}

}  // namespace

TokenLoader continued(const TokenLoader& loader, const DataProgress& progress) {
  std::vector<TokenLoader::Source> sources(loader.sources().begin(), loader.sources().end());
  for (TokenLoader::Source& source : sources) {
    const std::string& prefix = source.samples->token_source().prefix();
    const auto read = std::ranges::find(progress.sources, prefix, &SourceProgress::prefix);
    source.begin = read == progress.sources.end() ? 0 : next_sample(*read, source.order.count());
  }
  return TokenLoader(std::move(sources), progress.samples);
}

DataProgress progress_at(const TokenLoader& loader, const DataProgress& begin, std::int64_t position) {
  require(position >= begin.samples, "position {} is before the first sample {} of the loader", position,
          begin.samples);
  const std::int64_t seq_len = loader.sources().front().samples->shape().seq_len;
  DataProgress progress{.samples = position, .tokens = begin.tokens + (position - begin.samples) * seq_len};
  const std::vector<std::int64_t> next = loader.next_samples(position);
  for (std::size_t s = 0; s < next.size(); ++s) {
    const TokenLoader::Source& source = loader.sources()[s];
    progress.sources.push_back({source.samples->token_source().prefix(), next[s], source.order.count()});
  }
  for (const SourceProgress& other : begin.sources) {
    if (std::ranges::find(progress.sources, other.prefix, &SourceProgress::prefix) == progress.sources.end()) {
      progress.sources.push_back(other);
    }
  }
  return progress;
}

}  // namespace lyceum
