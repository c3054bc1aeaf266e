#include "io/data/loader/token_loader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"

namespace lyceum {

TokenLoader::TokenLoader(std::vector<Source> sources, std::int64_t first)
    : sources_(std::move(sources)), first_(first) {
  std::vector<double> weights;
  for (const auto& [samples, order, weight, begin, fingerprint] : sources_) {
    const std::string& prefix = samples->token_source().prefix();
    const std::int64_t seq_len = samples->shape().seq_len;
    require_usage(order.count() > 0,
                  "no sample of batch.seq_len={} is left of the {} in {}: lower batch.seq_len or add text", seq_len,
                  samples->count(), prefix);
    require_usage(order.first() <= samples->count() - order.count(),
                  "samples {} to {} are not in {}, which has {} of batch.seq_len={}", order.first(),
                  order.first() + order.count(), prefix, samples->count(), seq_len);
    weights.push_back(weight);
  }
  if (sources_.size() > 1) blend_ = std::make_shared<const Blend>(std::move(weights));
}

TokenLoader::TokenLoader(std::shared_ptr<const TokenSource> source, SampleOrder order, std::int64_t seq_len)
    : TokenLoader({{std::make_shared<const TokenSamples>(std::move(source), SampleShape{.seq_len = seq_len}), order}}) {
}

Blend::Sample TokenLoader::source_sample(std::int64_t index) const {
  Blend::Sample sample = blend_ ? blend_->at(index - first_) : Blend::Sample{0, index - first_};
  sample.index += sources_[sample.source].begin;
  return sample;
}

std::vector<std::int64_t> TokenLoader::next_samples(std::int64_t index) const {
  std::vector<std::int64_t> next = blend_ ? blend_->taken(index - first_) : std::vector{index - first_};
  for (std::size_t s = 0; s < next.size(); ++s) next[s] += sources_[s].begin;
  return next;
}

void TokenLoader::load(std::int64_t index, std::int64_t sequences, std::int64_t vocab, const SampleTokens& out) const {
  const auto length = static_cast<std::size_t>(sources_.front().samples->shape().seq_len);
  require(sequences >= 0 && out.inputs.size() == static_cast<std::size_t>(sequences) * length &&
              out.targets.size() == out.inputs.size(),
          "{} sequences of {} tokens do not fit {} inputs and {} targets", sequences, length, out.inputs.size(),
          out.targets.size());
  require(out.first_keys.empty() || out.first_keys.size() == out.inputs.size(), "there are {} first keys for {} inputs",
          out.first_keys.size(), out.inputs.size());
  for (std::int64_t s = 0; s < sequences; ++s) {
    const auto at = static_cast<std::size_t>(s) * length;
    const auto [source, sample] = source_sample(index + s);
    const auto& [samples, order, weight, begin, fingerprint] = sources_[source];
    samples->read(order(sample), vocab,
                  {.inputs = out.inputs.subspan(at, length),
                   .targets = out.targets.subspan(at, length),
                   .first_keys = out.first_keys.empty() ? out.first_keys : out.first_keys.subspan(at, length)});
  }
}

bool TokenLoader::masked() const {
  return std::ranges::any_of(sources_, [](const Source& source) { return source.samples->masked(); });
}

std::vector<std::int64_t> TokenLoader::token_positions(std::int64_t index) const {
  const auto [source, sample] = source_sample(index);
  return sources_[source].samples->token_positions(sources_[source].order(sample));
}

TokenLoader TokenLoader::spread(std::int64_t samples) const {
  return TokenLoader({{only().samples, only().order.spread(samples)}});
}

const TokenLoader::Source& TokenLoader::only() const {
  require(sources_.size() == 1, "the loader must have a single source, but has {}", sources_.size());
  return sources_.front();
}

std::int64_t TokenLoader::samples() const {
  std::int64_t sum = 0;
  for (const Source& source : sources_) sum += source.order.count();
  return sum;
}

}  // namespace lyceum
