#include "io/data/loader/packing.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"

namespace lyceum {

Packing::Packing(std::span<const std::int64_t> begins, std::int64_t seq_len) {
  require_usage(seq_len > 0, "batch.seq_len={}: a sample must have at least one token", seq_len);
  std::vector<std::pair<std::int64_t, TokenSpan>> assigned;  // (sequence, span)
  std::set<std::pair<std::int64_t, std::int64_t>> open;      // (room, sequence)
  std::int64_t sequences = 0;
  const auto assign = [&](const TokenSpan& span) {
    const auto fitting = open.lower_bound({span.inputs, 0});
    const bool fits = fitting != open.end();
    const auto [room, sequence] = fits ? *fitting : std::pair{seq_len, sequences++};
    if (fits) open.erase(fitting);
    if (room > span.inputs) open.insert({room - span.inputs, sequence});
    assigned.emplace_back(sequence, span);
    predicted_ += span.inputs;
  };
  for (std::size_t d = 0; d + 1 < begins.size(); ++d) {
    const std::int64_t last = begins[d + 1] - 1;  // only a target
    if (last <= begins[d]) continue;
    ++documents_;
    cut_ += last - begins[d] > seq_len;
    for (std::int64_t at = begins[d]; at < last; at += seq_len) assign({at, std::min(seq_len, last - at)});
  }
  std::ranges::stable_sort(assigned, {}, [](const auto& entry) { return entry.first; });
  for (const auto& [sequence, span] : assigned) {
    if (sequence == std::ssize(first_span_)) first_span_.push_back(std::ssize(spans_));
    spans_.push_back(span);
  }
  first_span_.push_back(std::ssize(spans_));
}

std::span<const TokenSpan> Packing::spans_of(std::int64_t sequence) const {
  const auto s = static_cast<std::size_t>(sequence);
  return std::span(spans_).subspan(static_cast<std::size_t>(first_span_[s]),
                                   static_cast<std::size_t>(first_span_[s + 1] - first_span_[s]));
}

}  // namespace lyceum
