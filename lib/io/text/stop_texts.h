#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lyceum {

/// Texts before which a text that grows is to end.
class StopTexts {
 public:
  /// None of them may be empty.
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  struct Found {
    std::size_t length = 0;  // of what comes before every stop, also before one that is still to come in full
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
