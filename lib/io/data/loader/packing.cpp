#include "io/data/loader/packing.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"

namespace lyceum {

Packing::Packing(std::span<const std::int64_t> begins, std::int64_t seq_len) {
  require_usage(seq_len > 0, "batch.seq_len={}: a sample has at least one token", seq_len);
  std::vector<std::pair<std::int64_t, TokenPiece>> placed;  // (sequence, span)
  std::set<std::pair<std::int64_t, std::int64_t>> open;     // (room, sequence)
  std::int64_t sequences = 0;
  const auto place = [&](const TokenPiece& piece) {
    const auto fitting = open.lower_bound({piece.inputs, 0});
    const bool fits = fitting != open.end();
    const auto [room, sequence] = fits ? *fitting : std::pair{seq_len, sequences++};
    if (fits) open.erase(fitting);
    if (room > piece.inputs) open.insert({room - piece.inputs, sequence});
    placed.emplace_back(sequence, piece);
    predicted_ += piece.inputs;
  };
  for (std::size_t d = 0; d + 1 < begins.size(); ++d) {
    const std::int64_t last = begins[d + 1] - 1;  // only a target
    if (last <= begins[d]) continue;
    ++documents_;
    cut_ += last - begins[d] > seq_len;
    for (std::int64_t at = begins[d]; at < last; at += seq_len) place({at, std::min(seq_len, last - at)});
  }
  std::ranges::stable_sort(placed, {}, [](const auto& entry) { return entry.first; });
  for (const auto& [sequence, piece] : placed) {
    if (sequence == std::ssize(first_piece_)) first_piece_.push_back(std::ssize(pieces_));
    pieces_.push_back(piece);
  }
  first_piece_.push_back(std::ssize(pieces_));
}

std::span<const TokenPiece> Packing::of(std::int64_t sequence) const {
  const auto s = static_cast<std::size_t>(sequence);
  return std::span(pieces_).subspan(static_cast<std::size_t>(first_piece_[s]),
                                    static_cast<std::size_t>(first_piece_[s + 1] - first_piece_[s]));
}

}  // namespace lyceum
