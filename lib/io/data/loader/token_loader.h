#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "io/data/loader/blend.h"
#include "io/data/loader/sample_order.h"
#include "io/data/loader/token_samples.h"
#include "io/data/tokens/token_source.h"

namespace lyceum {

/// Fills sequences with samples of one source or of a mixture, in an order that is a pure function of the position.
class TokenLoader {
 public:
  struct Source {
    std::shared_ptr<const TokenSamples> samples;
    SampleOrder order;
    double weight = 1;  // of a mixture: its share of the samples, after division by the sum
  };
  /// An order that is empty or reaches beyond the samples is a usage Error.
  explicit TokenLoader(std::vector<Source> sources);
  TokenLoader(std::shared_ptr<const TokenSource> source, SampleOrder order, std::int64_t seq_len);

  /// Reads the samples at positions index … index + sequences − 1.
  void load(std::int64_t index, std::int64_t sequences, std::int64_t vocab, const SampleTokens& out) const;
  /// True if some targets may not count.
  bool masked() const;
  /// TokenSamples::places() of the sample at a position.
  std::vector<std::int64_t> places(std::int64_t index) const;
  /// Which source the samples at a position is of, and the how manyth of it.
  Blend::Place place_of(std::int64_t index) const;
  /// A loader of `samples` of this one's samples, which are of one source, see SampleOrder::spread().
  TokenLoader spread(std::int64_t samples) const;

  std::span<const Source> sources() const { return sources_; }
  /// The order and the tokens of the only source.
  const SampleOrder& order() const { return only().order; }
  const TokenSource& token_source() const { return only().samples->token_source(); }
  /// Samples of an epoch of every source.
  std::int64_t samples() const;
  /// A source's share of the samples.
  double weight(std::size_t source) const { return blend_ ? blend_->weights()[source] : 1; }

 private:
  const Source& only() const;

  std::vector<Source> sources_;
  std::shared_ptr<const Blend> blend_;  // of several sources
};

}  // namespace lyceum
