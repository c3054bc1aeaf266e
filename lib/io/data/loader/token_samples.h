#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "io/data/loader/packing.h"
#include "io/data/tokens/token_source.h"

namespace lyceum {

/// Samples that `tokens` tokens hold at `seq_len` (the last needs one more token as target).
std::int64_t samples_in(std::int64_t tokens, std::int64_t seq_len);

/// How samples are made of tokens, and what their tokens see.
struct SampleShape {
  std::int64_t seq_len;
  bool packed = false;  // whole documents, see Packing; else sample i is tokens [i · seq_len, i · seq_len + seq_len]
  bool documents = false;  // tokens see no other document than their own
};

/// Memory for the tokens of samples [sequences, seq_len].
struct SampleTokens {
  std::span<std::int32_t> inputs;   // 0 where a packed sample has no more documents
  std::span<std::int32_t> targets;  // no_target where the prediction does not count
  /// See FirstKeys; may be empty.
  std::span<std::int32_t> first_keys = {};
};

/// The samples of a token source. A target counts in the loss unless the source's mask says otherwise, it is padding,
/// or SampleShape::documents holds and it is the first token of a document, of which the tokens before it know nothing.
class TokenSamples {
 public:
  /// A seq_len that leaves no sample is a usage Error.
  TokenSamples(std::shared_ptr<const TokenSource> source, const SampleShape& shape);

  std::int64_t count() const;
  /// True if some targets may not count.
  bool masked() const { return shape_.documents || shape_.packed || source_->has_mask(); }
  /// True if a target of the samples first … first + count − 1 counts. Reads masks, but no tokens.
  bool any_target(std::int64_t first, std::int64_t count) const;
  /// Throws a bad_input Error that names file and position when a token is not below `vocab`.
  void read(std::int64_t sample, std::int64_t vocab, const SampleTokens& out) const;
  /// Position of each input of a sample in the source; −1 for padding.
  std::vector<std::int64_t> places(std::int64_t sample) const;

  const TokenSource& token_source() const { return *source_; }
  const SampleShape& shape() const { return shape_; }
  const Packing* packing() const { return packing_ ? &*packing_ : nullptr; }

 private:
  std::span<const TokenPiece> pieces_of(std::int64_t sample, TokenPiece& whole) const;
  void read_piece(const TokenPiece& piece, std::int64_t vocab, const SampleTokens& out) const;
  void separate_documents(const TokenPiece& piece, const SampleTokens& out) const;

  std::shared_ptr<const TokenSource> source_;
  SampleShape shape_;
  std::optional<Packing> packing_;
};

}  // namespace lyceum
