#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "io/data/loader/document_spans.h"
#include "io/data/tokens/token_source.h"

namespace lyceum {

/// The counts of a packing, see Packing.
struct PackingCounts {
  std::int64_t seq_len = 0, sequences = 0, spans = 0;
  std::int64_t documents = 0, cut_documents = 0, predicted_tokens = 0;  // see SpanSurvey
  bool operator==(const PackingCounts&) const = default;
};

/// Memory or a file that keeps the sequence of each span between two passes over the spans.
struct PlacementStore {
  /// Adds the sequences of the next spans.
  std::function<void(std::span<const std::int64_t> sequences)> append;
  /// Reads the sequences of the spans from span `first` on. Called after the last append().
  std::function<void(std::int64_t first, std::span<std::int64_t> sequences)> read;
};

/// The request to pack a source into sequences of seq_len inputs.
struct PackingRequest {
  const TokenSource& source;
  std::int64_t seq_len;
  const SpanSurvey& survey;                       // survey_spans() of the source
  std::atomic<std::int64_t>* progress = nullptr;  // unless null, a counter that changes while the spans are packed
};

/// Places the spans of a source (for_spans()), in their order, by BestFit. Calls `put` with blocks of the spans ordered
/// by sequence. Returns the index in this order of the first span of each sequence, followed by the number of spans:
/// [sequences + 1]. A block has up to `block_spans` spans, or those of one sequence. For each block, all spans and
/// placements are read again. Needs memory for a block (16 B per span and 8 B per sequence in it), for the result (8 B
/// per sequence, or up to 24 B while it grows if more than 1/9 of the inputs are padding), and for BestFit.
std::vector<std::int64_t> pack_spans(const PackingRequest& request, const PlacementStore& store,
                                     std::int64_t block_spans,
                                     const std::function<void(std::span<const TokenSpan>)>& put);

/// Returns the counts of a packing into `sequences` sequences.
PackingCounts counts_of(const PackingRequest& request, std::int64_t sequences);

}  // namespace lyceum
