#pragma once

#include <cstdint>

namespace lyceum {

/// A run of tokens cut into pieces of their sequences. Sums over a sequence are made piece by piece and then added in
/// order, so that they are the same whoever works on a piece.
struct RouterChunks {
  static constexpr std::int64_t rows = 64;  // of a piece, at most

  std::int64_t tokens, seq_len, first, sequences;

  constexpr std::int64_t of_sequence() const { return (seq_len + rows - 1) / rows; }
  constexpr std::int64_t count() const { return sequences * of_sequence(); }
  /// Where the rows of a piece begin and end; nowhere, for one of which none are here.
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
    return row < 0 ? 0 : row < tokens ? row : tokens;
  }
};

/// Of a forward or backward pass, with the load [sequences, …] that it makes or has the gradient of. Without one, all
/// rows are as of one sequence.
template <class Route, class Load>
RouterChunks chunks_of(const Route& route, const Load& load) {
  const std::int64_t tokens = route.logits.rows;
  if (load.rows > 0) return {tokens, route.seq_len, route.first, load.rows};
  return {tokens, tokens > 0 ? tokens : 1, 0, tokens > 0 ? 1 : 0};
}

}  // namespace lyceum
