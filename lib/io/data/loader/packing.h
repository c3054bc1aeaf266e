#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lyceum {

/// A part of a document: `inputs` inputs, which are the tokens from position `begin` of the source on. Their targets
/// are the tokens from begin + 1 to begin + inputs.
struct TokenSpan {
  std::int64_t begin, inputs;
  bool operator==(const TokenSpan&) const = default;
};

/// Packs the documents of a source into sequences of seq_len inputs. A document of n tokens has n − 1 inputs; if these
/// are more than seq_len, it is cut into several spans. In the order of the documents, each span is placed into the
/// open sequence in which it leaves the least room, or into a new one (best fit). A document of fewer than two tokens
/// has no target and is skipped.
class Packing {
 public:
  /// `begins`: the position of the first token of each document, then the number of tokens
  /// (TokenSource::document_begins()).
  Packing(std::span<const std::int64_t> begins, std::int64_t seq_len);

  /// Returns the number of sequences.
  std::int64_t sequences() const { return static_cast<std::int64_t>(first_span_.size()) - 1; }
  /// Returns the spans of a sequence, which fill it from its beginning without gaps. The rest of it is padding.
  std::span<const TokenSpan> spans_of(std::int64_t sequence) const;
  std::int64_t documents() const { return documents_; }         // documents in the sequences
  std::int64_t cut_documents() const { return cut_; }           // documents cut into several spans
  std::int64_t predicted_tokens() const { return predicted_; }  // targets of all spans

 private:
  std::vector<TokenSpan> spans_;          // ordered by sequence
  std::vector<std::int64_t> first_span_;  // index in spans_ of each sequence's first span; then spans_.size()
  std::int64_t documents_ = 0, cut_ = 0, predicted_ = 0;
};

}  // namespace lyceum
