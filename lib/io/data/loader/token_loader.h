#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "io/data/loader/blend.h"
#include "io/data/loader/packing.h"
#include "io/data/tokens/token_source.h"

namespace lyceum {

/// Which samples a run reads, of a number that it counts: all samples before `limit` in the order, epoch after epoch,
/// each epoch with its own permutation.
class SampleOrder {
 public:
  enum class Kind { shuffled, sequential };
  /// `first`, `count`: the range of samples that this split owns; an empty range can be made but not read. `source`: of
  /// a mixture, whose sources have permutations of their own.
  SampleOrder(Kind kind, std::uint64_t seed, std::int64_t first, std::int64_t count, std::size_t source = 0);
  /// The stream's sample at global position `index` (step · global batch + position); pure.
  std::int64_t operator()(std::int64_t index) const;
  std::int64_t first() const { return first_; }
  std::int64_t count() const { return count_; }
  /// An order of `samples` positions, 1 to count(), which are spread evenly over those of an epoch of this one.
  SampleOrder spread(std::int64_t samples) const;

 private:
  Kind kind_;
  std::uint64_t seed_;
  std::int64_t first_, count_;
  std::size_t source_;
  std::int64_t taken_;  // of the count_ positions of an epoch
};

/// Samples that `tokens` tokens hold at `seq_len` (the last needs one more token as target).
std::int64_t samples_in(std::int64_t tokens, std::int64_t seq_len);

/// How samples are made of a token file, and what their tokens see.
struct SampleShape {
  std::int64_t seq_len;
  bool packed = false;  // whole documents, see Packing; else sample i is tokens [i · seq_len, i · seq_len + seq_len]
  bool documents = false;  // tokens see no other document than their own
};

/// What is read of samples [sequences, seq_len].
struct SampleTokens {
  std::span<std::int32_t> inputs;   // 0 where a packed sample has no more documents
  std::span<std::int32_t> targets;  // no_target where the prediction does not count
  /// Where it is not empty: see FirstKeys.
  std::span<std::int32_t> first_keys = {};
};

/// The samples of a token file. A target counts in the loss unless the file's mask says otherwise, it is padding, or
/// SampleShape::documents holds and it is the first token of a document, of which the tokens before it know nothing.
class TokenSamples {
 public:
  /// A seq_len that leaves no sample is a usage Error.
  TokenSamples(std::shared_ptr<const TokenFile> file, const SampleShape& shape);

  std::int64_t count() const;
  /// Whether some targets may not count.
  bool masked() const { return shape_.documents || shape_.packed || file_->has_mask(); }
  /// True if a target of the samples first … first + count − 1 counts. Reads masks, but no tokens.
  bool any_target(std::int64_t first, std::int64_t count) const;
  /// Throws a bad_input Error that names file and position when a token is not below `vocab`.
  void read(std::int64_t sample, std::int64_t vocab, const SampleTokens& out) const;
  /// Position of each input of a sample in the file; −1 for padding.
  std::vector<std::int64_t> places(std::int64_t sample) const;

  const TokenFile& file() const { return *file_; }
  const SampleShape& shape() const { return shape_; }
  const Packing* packing() const { return packing_ ? &*packing_ : nullptr; }

 private:
  std::span<const TokenPiece> pieces_of(std::int64_t sample, TokenPiece& whole) const;
  void read_piece(const TokenPiece& piece, std::int64_t vocab, const SampleTokens& out) const;
  void separate_documents(const TokenPiece& piece, const SampleTokens& out) const;

  std::shared_ptr<const TokenFile> file_;
  SampleShape shape_;
  std::optional<Packing> packing_;
};

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
  TokenLoader(std::shared_ptr<const TokenFile> file, SampleOrder order, std::int64_t seq_len);

  /// Reads the samples at positions index … index + sequences − 1.
  void load(std::int64_t index, std::int64_t sequences, std::int64_t vocab, const SampleTokens& out) const;
  /// Whether some targets may not count.
  bool masked() const;
  /// TokenSamples::places() of the sample at a position.
  std::vector<std::int64_t> places(std::int64_t index) const;
  /// Which source the samples at a position is of, and the how manyth of it.
  Blend::Place place_of(std::int64_t index) const;
  /// A loader of `samples` of this one's samples, which are of one source, see SampleOrder::spread().
  TokenLoader spread(std::int64_t samples) const;

  std::span<const Source> sources() const { return sources_; }
  /// Of the only source.
  const SampleOrder& order() const { return only().order; }
  const TokenFile& file() const { return only().samples->file(); }
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
