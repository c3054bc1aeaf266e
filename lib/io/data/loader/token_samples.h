#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "io/data/loader/packing.h"
#include "io/data/tokens/token_source.h"

namespace lyceum {

/// Returns how many samples of seq_len inputs fit into `tokens` tokens. The last sample needs one more token as target.
/// Throws a usage Error unless seq_len > 0.
std::int64_t samples_in(std::int64_t tokens, std::int64_t seq_len);

/// How a source is divided into samples, and what their tokens attend to.
struct SampleShape {
  std::int64_t seq_len;
  /// True: samples contain whole documents, see Packing. False: sample i is tokens [i · seq_len, i · seq_len +
  /// seq_len].
  bool packed = false;
  /// True: tokens attend only to their own document.
  bool documents = false;
};

/// The destination of samples: memory of the caller with the shape [sequences, seq_len].
struct SampleTokens {
  std::span<std::int32_t> inputs;   // 0 for the padding of packed samples
  std::span<std::int32_t> targets;  // no_target if the prediction does not count in the loss
  /// The first position in its sequence to which each input attends, see FirstKeys. May be empty. Left unchanged unless
  /// SampleShape::packed or SampleShape::documents is set.
  std::span<std::int32_t> first_keys = {};
};

/// The samples of a token source. A target counts in the loss except if
///
/// - the source's mask excludes it,
/// - it is padding,
/// - SampleShape::documents is set and it is the first token of a document, since it cannot be predicted from another
///   document.
class TokenSamples {
 public:
  /// Opens the packing of packed samples, see open_packing(). Throws a usage Error if the source has no sample of this
  /// seq_len, and the errors of open_packing().
  TokenSamples(std::shared_ptr<const TokenSource> source, const SampleShape& shape);

  /// Returns the number of samples.
  std::int64_t count() const;
  /// True if some targets may not count in the loss.
  bool masked() const { return shape_.documents || shape_.packed || source_->has_mask(); }
  /// True if at least one target of the samples [first, first + count) counts. Reads the mask, but no tokens.
  bool any_target(std::int64_t first, std::int64_t count) const;
  /// Reads one sample; the spans of `out` have seq_len elements. Throws a bad_input Error that names the file and the
  /// position if a token is not in [0, vocab).
  void read(std::int64_t sample, std::int64_t vocab, const SampleTokens& out) const;
  /// Returns the position of each input of a sample in the source, [seq_len]; −1 for padding.
  std::vector<std::int64_t> token_positions(std::int64_t sample) const;

  const TokenSource& token_source() const { return *source_; }
  const SampleShape& shape() const { return shape_; }
  /// Returns the packing; null unless SampleShape::packed.
  const Packing* packing() const { return packing_.get(); }

 private:
  std::vector<TokenSpan> spans_of(std::int64_t sample) const;
  void read_span(const TokenSpan& span, std::int64_t vocab, const SampleTokens& out) const;
  void separate_documents(const TokenSpan& span, const SampleTokens& out) const;

  std::shared_ptr<const TokenSource> source_;
  SampleShape shape_;
  std::shared_ptr<const Packing> packing_;  // null unless samples are packed
};

}  // namespace lyceum
