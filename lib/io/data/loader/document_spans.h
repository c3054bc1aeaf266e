#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include "io/data/tokens/token_source.h"

namespace lyceum {

/// A part of a document: `inputs` inputs, which are the tokens from position `begin` of the source on. Their targets
/// are the tokens from begin + 1 to begin + inputs.
struct TokenSpan {
  std::int64_t begin, inputs;
  bool operator==(const TokenSpan&) const = default;
};

/// Calls each(TokenSpan) for the spans of all documents of a source, in their order. A document of n tokens has n − 1
/// inputs; if these are more than seq_len, it is cut into several spans. A document of fewer than two tokens has no
/// target and is skipped. Uses constant memory.
template <class Each>
void for_spans(const TokenSource& source, std::int64_t seq_len, const Each& each) {
  std::int64_t begin = -1;  // of the current document
  source.for_document_begins([&](std::span<const std::int64_t> begins) {
    for (const std::int64_t next : begins) {
      for (std::int64_t at = begin; begin >= 0 && at < next - 1; at += seq_len) {
        each(TokenSpan{at, std::min(seq_len, next - 1 - at)});
      }
      begin = next;
    }
  });
}

/// The result of a pass over the spans of a source.
struct SpanSurvey {
  std::int64_t spans = 0;
  std::int64_t documents = 0;         // documents with at least one span
  std::int64_t cut_documents = 0;     // documents cut into several spans
  std::int64_t predicted_tokens = 0;  // targets of all spans
  std::int64_t least_inputs = 0;      // inputs of the smallest span; 0 if there is none
  /// Identifies the sequences that the spans are packed into: a SHA-256 of seq_len and of the begins of all documents,
  /// as 64 hexadecimal digits.
  std::string key{};
};
/// Reads the begins of all documents. Adds to *progress, unless it is null, while it reads. Throws a usage Error unless
/// seq_len > 0.
SpanSurvey survey_spans(const TokenSource& source, std::int64_t seq_len, std::atomic<std::int64_t>* progress = nullptr);

}  // namespace lyceum
