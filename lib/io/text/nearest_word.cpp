#include "io/text/nearest_word.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lyceum {

std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t most) {
  const std::size_t lengths_differ = std::max(a.size(), b.size()) - std::min(a.size(), b.size());
  if (lengths_differ > most) return lengths_differ;
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1), least = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
      least = std::min(least, row[j + 1]);
    }
    if (least > most) return least;  // each path to the last row passes through this row
  }
  return row.back();
}

std::string nearest_word(std::string_view misspelt, const std::vector<std::string>& words) {
  constexpr std::size_t longest = 64;  // a longer text is not a misspelt key or name
  std::pair<std::size_t, std::string> best{std::max<std::size_t>(2, misspelt.size() / 3) + 1, ""};
  if (misspelt.size() > longest) return {};
  for (const std::string& word : words) best = std::min(best, {edit_distance(misspelt, word, best.first), word});
  return best.second;
}

}  // namespace lyceum
