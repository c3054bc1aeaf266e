#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// The bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

/// True if `range` has a byte in common with one of `ranges`, which are sorted and disjoint. An empty range counts as
/// the byte that follows it.
inline bool overlaps(std::span<const TextRange> ranges, TextRange range) {
  range.end = std::max(range.end, range.begin + 1);
  const auto first = std::ranges::upper_bound(ranges, range.begin, {}, &TextRange::end);
  return first != ranges.end() && first->begin < range.end && first->begin < first->end;
}

/// Returns change(before), and replaces each of `offsets`, which are ascending byte offsets in `before`, by the offset
/// of the same position in the result. An offset within text that is replaced as a whole becomes the offset of the
/// beginning of its replacement.
///
/// `change` must not depend on context across a space or a newline that an ASCII character follows: the text is divided
/// there, so that the time is linear in its size.
template <class Change>
std::string change_and_move_offsets(std::string_view before, std::span<std::size_t> offsets, const Change& change) {
  std::string after = change(std::string(before));
  std::size_t known = 0, known_after = 0;  // offset after the last space or newline at which the text was divided
  const auto can_split = [&](std::size_t at) {
    return (before[at - 1] == ' ' || before[at - 1] == '\n') && static_cast<unsigned char>(before[at]) < 0x80;
  };
  for (std::size_t& offset : offsets) {
    if (offset >= before.size()) {
      offset = after.size();
      continue;
    }
    std::size_t split = offset;
    while (split > known && !can_split(split)) --split;
    if (split > known) {
      known_after += change(std::string(before.substr(known, split - known))).size();
      known = split;
    }
    const std::string head = change(std::string(before.substr(known, offset - known)));
    const std::string_view rest = std::string_view(after).substr(std::min(known_after, after.size()));
    offset = known_after + static_cast<std::size_t>(std::ranges::mismatch(head, rest).in1 - head.begin());
    while (offset > 0 && offset < after.size() && (static_cast<unsigned char>(after[offset]) & 0xC0u) == 0x80u)
      --offset;
  }
  return after;
}

/// Calls map(offsets) once, with a span of the begins and ends of all ranges in ascending order, and sets the begins
/// and ends to the values that `map` leaves in the span. The ranges are sorted and disjoint.
template <class Map>
void move_ends(std::span<TextRange> ranges, const Map& map) {
  std::vector<std::size_t> offsets;
  for (const TextRange& range : ranges) offsets.insert(offsets.end(), {range.begin, range.end});
  map(std::span(offsets));
  for (std::size_t i = 0; i < ranges.size(); ++i) ranges[i] = {offsets[2 * i], offsets[2 * i + 1]};
}

/// A text and its marked ranges, which are sorted and disjoint. Does not own either.
struct MarkedText {
  std::string_view text{};
  std::span<const TextRange> marked{};
};

}  // namespace lyceum
