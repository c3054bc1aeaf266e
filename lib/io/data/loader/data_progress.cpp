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

/// Returns the progress of each source of `loader`, in order; null for a source that was not read before.
std::vector<const SourceProgress*> progress_of_sources(const TokenLoader& loader, const DataProgress& progress) {
  std::vector<const SourceProgress*> found;
  const auto has_prefix = [](const TokenLoader::Source& source, const SourceProgress& read) {
    return source.samples->token_source().prefix() == read.prefix;
  };
  for (const TokenLoader::Source& source : loader.sources()) {
    const auto read =
        std::ranges::find_if(progress.sources, [&](const auto& each) { return has_prefix(source, each); });
    found.push_back(read == progress.sources.end() ? nullptr : &*read);
  }
  for (std::size_t s = 0; s < found.size(); ++s) {
    const TokenLoader::Source& source = loader.sources()[s];
    if (found[s] || source.fingerprint.empty()) continue;
    const auto read = std::ranges::find_if(progress.sources, [&](const SourceProgress& each) {
      return each.fingerprint == source.fingerprint && std::ranges::find(found, &each) == found.end();
    });
    if (read != progress.sources.end()) found[s] = &*read;
  }
  return found;
}

}  // namespace

TokenLoader continued(const TokenLoader& loader, const DataProgress& progress) {
  std::vector<TokenLoader::Source> sources(loader.sources().begin(), loader.sources().end());
  const std::vector<const SourceProgress*> read = progress_of_sources(loader, progress);
  for (std::size_t s = 0; s < sources.size(); ++s) {
    sources[s].begin = read[s] ? next_sample(*read[s], sources[s].order.count()) : 0;
    if (read[s] && read[s]->order >= 0) {
      sources[s].order = sources[s].order.of_source(static_cast<std::size_t>(read[s]->order));
    }
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
    progress.sources.push_back({.prefix = source.samples->token_source().prefix(),
                                .samples = next[s],
                                .per_pass = source.order.count(),
                                .fingerprint = source.fingerprint,
                                .order = static_cast<std::int64_t>(source.order.source())});
  }
  const std::vector<const SourceProgress*> present = progress_of_sources(loader, begin);
  for (const SourceProgress& other : begin.sources) {
    if (std::ranges::find(present, &other) == present.end()) progress.sources.push_back(other);
  }
  return progress;
}

}  // namespace lyceum
