#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/data/loader/blend.h"
#include "io/data/loader/sample_order.h"
#include "io/data/loader/token_samples.h"
#include "io/data/tokens/token_source.h"

namespace lyceum {

/// Fills sequences with samples of one source or of a mixture. The sample at a position depends only on the sources and
/// the position.
class TokenLoader {
 public:
  /// A source of the samples, and the order in which they are read from it.
  struct Source {
    std::shared_ptr<const TokenSamples> samples;
    SampleOrder order;
    double weight = 1;          // in a mixture: relative share of the samples; divided by the sum of the weights
    std::int64_t begin = 0;     // position in `order` of the first sample that is read
    std::string fingerprint{};  // TokenSource::fingerprint(), if known: DataProgress identifies a renamed source by it
  };
  /// There must be at least one source, and all must have the same seq_len. `first`: the first position, at which the
  /// mixture begins. Throws a usage Error if an order is empty or exceeds the samples of its source.
  explicit TokenLoader(std::vector<Source> sources, std::int64_t first = 0);
  /// Loads the samples of one source, neither packed nor with separate documents.
  TokenLoader(std::shared_ptr<const TokenSource> source, SampleOrder order, std::int64_t seq_len);

  /// Reads the samples at positions [index, index + sequences). `vocab`: see TokenSamples::read().
  void load(std::int64_t index, std::int64_t sequences, std::int64_t vocab, const SampleTokens& out) const;
  /// True if some targets may not count in the loss.
  bool masked() const;
  /// Returns TokenSamples::token_positions() of the sample at a position.
  std::vector<std::int64_t> token_positions(std::int64_t index) const;
  /// Returns the source of the sample at a position, and the sample's index in the order of that source.
  Blend::Sample source_sample(std::int64_t index) const;
  /// Returns the position in the order of each source after the samples before position `index` were read.
  std::vector<std::int64_t> next_samples(std::int64_t index) const;
  /// Returns a loader with `samples` samples per epoch, which are evenly spaced among this loader's, see
  /// SampleOrder::spread(). Precondition: there is one source.
  TokenLoader spread(std::int64_t samples) const;

  std::span<const Source> sources() const { return sources_; }
  /// Return the order and the tokens of the source. Precondition: there is one source.
  const SampleOrder& order() const { return only().order; }
  const TokenSource& token_source() const { return only().samples->token_source(); }
  /// Returns the sum of SampleOrder::count() of all sources. It is the number of samples per epoch unless the loader is
  /// a result of spread().
  std::int64_t samples() const;
  /// Returns the share of a source in the samples, 0 to 1.
  double weight(std::size_t source) const { return blend_ ? blend_->weights()[source] : 1; }

 private:
  const Source& only() const;

  std::vector<Source> sources_;
  std::shared_ptr<const Blend> blend_;  // null if there is one source
  std::int64_t first_ = 0;
};

}  // namespace lyceum
