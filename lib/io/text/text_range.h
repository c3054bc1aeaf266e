#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lyceum {

/// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

/// True if `range` has a byte in common with one of `ranges`, which are sorted and disjoint. An empty range counts as
/// the byte behind it.
inline bool overlaps(std::span<const TextRange> ranges, TextRange range) {
  range.end = std::max(range.end, range.begin + 1);
  const auto first = std::ranges::upper_bound(ranges, range.begin, {}, &TextRange::end);
  return first != ranges.end() && first->begin < range.end && first->begin < first->end;
}

/// Returns where the byte `at` of `before` is in `after`, which change(before) is: behind what the two have in common
/// of the text up to there.
template <class Change>
std::size_t place_after(std::string_view before, std::string_view after, std::size_t at, const Change& change) {
  if (at == before.size()) return after.size();
  const std::string head = change(std::string(before.substr(0, at)));
  auto place = static_cast<std::size_t>(std::ranges::mismatch(head, after).in1 - head.begin());
  while (place > 0 && place < after.size() && (static_cast<unsigned char>(after[place]) & 0xC0u) == 0x80u) --place;
  return place;
}

/// A text of which some ranges are marked; they are sorted and disjoint.
struct MarkedText {
  std::string_view text{};
  std::span<const TextRange> marked{};
};

}  // namespace lyceum
