#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lyceum {

/// Tokens [begin, begin + inputs] of a stream, the last one as target only.
struct TokenPiece {
  std::int64_t begin, inputs;
  bool operator==(const TokenPiece&) const = default;
};

/// Documents in sequences of one length. Each comes into the open sequence that it leaves the least room in, or opens a
/// new one (best fit), in their order. One that is longer than a sequence is cut into several pieces; one of fewer than
/// two tokens has nothing to predict and is skipped.
class Packing {
 public:
  /// `begins`: of every document, and the end of the last one.
  Packing(std::span<const std::int64_t> begins, std::int64_t seq_len);

  std::int64_t sequences() const { return static_cast<std::int64_t>(first_piece_.size()) - 1; }
  /// The pieces of a sequence, one after another from its begin on; what is left is padding.
  std::span<const TokenPiece> of(std::int64_t sequence) const;
  std::int64_t documents() const { return documents_; }         // that are in sequences
  std::int64_t cut_documents() const { return cut_; }           // of them
  std::int64_t predicted_tokens() const { return predicted_; }  // targets of all pieces

 private:
  std::vector<TokenPiece> pieces_;         // sequence by sequence
  std::vector<std::int64_t> first_piece_;  // of every sequence, and their number
  std::int64_t documents_ = 0, cut_ = 0, predicted_ = 0;
};

}  // namespace lyceum
