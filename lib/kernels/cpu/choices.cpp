#include "kernels/choices.h"

#include <algorithm>

#include "kernels/choices_checks.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

void run(const CpuStream& stream, const MapChoices& map) {
  const std::int64_t tokens = map.index.rows, k = map.index.cols;
  const bool counts = !map.count.empty();
  require_fitting(map);
  for (std::int64_t t = 0; t < tokens; ++t) {
    require_indices("MapChoices", "index", std::span(map.index.row(t), static_cast<std::size_t>(k)), -1,
                    std::ssize(map.destination));
  }
  if (counts) require_indices("MapChoices", "destination", map.destination, -1, std::ssize(map.count));
  for_each_row(stream, tokens, k, [&](std::int64_t t) {
    for (std::int64_t j = 0; j < k; ++j) map.y.row(t)[j] = destination_of(map, t, j);
  });
  if (!counts) return;
  std::ranges::fill(map.count, 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int32_t choice = map.index.row(t)[j],
                         destination = choice < 0 ? -1 : map.destination[static_cast<std::size_t>(choice)];
      if (destination >= 0) ++map.count[static_cast<std::size_t>(destination)];
    }
  }
}

void run(const CpuStream& stream, const DivideChoices& divide) {
  require_fitting(divide);
  require_indices("DivideChoices", "first_share", divide.first_share, 0, std::ssize(divide.destination) + 1);
  for_each_row(stream, divide.index.rows, divide.index.cols, [&](std::int64_t t) {
    for (std::int64_t j = 0; j < divide.index.cols; ++j) divide.y.row(t)[j] = destination_of(divide, t, j);
  });
}

}  // namespace lyceum
