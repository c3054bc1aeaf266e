#pragma once

#include <cstdint>

namespace lyceum {

/// Divides a span of tokens into chunks of at most 64 tokens, each within one sequence. Sums over a sequence are
/// computed chunk by chunk and then added up in order, so they do not depend on the distribution of chunks to threads.
/// Row t of the span is token first + t of `sequences` sequences of seq_len tokens; chunks of all sequences are
/// numbered consecutively, including chunks without tokens of the span.
struct RouterChunks {
  static constexpr std::int64_t rows = 64;  // most tokens of a chunk

  std::int64_t tokens, seq_len, first, sequences;

  /// Returns the number of chunks per sequence.
  constexpr std::int64_t of_sequence() const { return (seq_len + rows - 1) / rows; }
  constexpr std::int64_t count() const { return sequences * of_sequence(); }
  /// The rows of a chunk are [begin(chunk), end(chunk)); the range is empty if no token of the chunk is in the span.
  constexpr std::int64_t begin(std::int64_t chunk) const { return here(position(chunk)); }
  constexpr std::int64_t end(std::int64_t chunk) const {
    const std::int64_t next = (chunk / of_sequence() + 1) * seq_len, full = position(chunk) + rows;
    return here(full < next ? full : next);
  }

 private:
  constexpr std::int64_t position(std::int64_t chunk) const {
    return chunk / of_sequence() * seq_len + chunk % of_sequence() * rows;
  }
  constexpr std::int64_t here(std::int64_t token) const {
    const std::int64_t row = token - first;
    if (row < 0) return 0;
    return row < tokens ? row : tokens;
  }
};

/// Returns the chunks of a RouteTokens or RouteTokensBackward. `load` is its load or the gradient of it. Without a load
/// (no rows), all tokens count as one sequence.
template <class Route, class Load>
RouterChunks chunks_of(const Route& route, const Load& load) {
  const std::int64_t tokens = route.logits.rows;
  if (load.rows > 0) return {tokens, route.seq_len, route.first, load.rows};
  return {tokens, tokens > 0 ? tokens : 1, 0, tokens > 0 ? 1 : 0};
}

}  // namespace lyceum
