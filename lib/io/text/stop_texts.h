#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lyceum {

/// The stop strings of a generation. Use it on text that is generated bit by bit: find_in() returns how much of the
/// text so far can be shown, and whether the generation ends.
class StopTexts {
 public:
  /// Precondition: no text is empty. An empty list never stops.
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  struct Found {
    /// Bytes before the first stop text. If no stop text occurs, the last bytes are left out while they may be the
    /// beginning of one: for the stop text "</s>", the length in "abc</" is 3.
    std::size_t length = 0;
    bool stops = false;
    bool operator==(const Found&) const = default;
  };
  Found find_in(std::string_view text) const {
    Found found{.length = text.size()};
    for (const std::string& stop : texts_) {
      if (const std::size_t at = text.find(stop); at != std::string_view::npos) {
        found = {.length = std::min(at, found.length), .stops = true};
      }
    }
    if (found.stops) return found;
    for (const std::string& stop : texts_) {
      std::size_t begun = std::min(stop.size() - 1, text.size());
      while (begun > 0 && !text.ends_with(std::string_view(stop).substr(0, begun))) --begun;
      found.length = std::min(found.length, text.size() - begun);
    }
    return found;
  }

 private:
  std::vector<std::string> texts_;
};

}  // namespace lyceum
