#include "train/step/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/copy.h"
#include "parallel/comm/verdict.h"

namespace lyceum {
namespace {

/// Returns a key by which findings are ordered; the finding with the smallest key says most about the cause.
std::pair<std::int64_t, std::int64_t> priority(const Finding& finding) {
  return {-static_cast<std::int64_t>(finding.kind), finding.order};
}

}  // namespace

void Finding::add(Finding other) {
  if (priority(other) < priority(*this)) *this = std::move(other);
}

Finding agree(const ProcessGroup& world, const Finding& own) {
  const auto [kind, order] = priority(own);
  const std::array<std::int64_t, 2> sent{kind, order};
  std::vector<std::int64_t> all(sent.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::int64_t>(sent), std::span(all));
  const auto of = [&](int rank) {
    return std::pair(all[2 * static_cast<std::size_t>(rank)], all[2 * static_cast<std::size_t>(rank) + 1]);
  };
  std::pair best = of(0);
  for (int rank = 1; rank < world.size(); ++rank) best = std::min(best, of(rank));
  if (best.first == 0) return {};
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (of(rank) == best) ranks.push_back(rank);
  }
  const std::string what = world.broadcast(own.what, ranks.front());
  return {.kind = static_cast<Finding::Kind>(-best.first),
          .order = best.second,
          .what = fmt::format("{} on rank{} {}", what, ranks.size() > 1 ? "s" : "", rank_ranges(ranks)),
          .ranks = ranks};
}

bool all_finite(const Stream& stream, const Tensor& values, const Range& part) {
  if (part.count == 0) return true;
  return dispatch_float(values.dtype(), [&]<class T>() {
    std::vector<T> host(static_cast<std::size_t>(part.count));
    copy_to_host(stream, host.data(), values.data<T>() + part.first, host.size() * sizeof(T));
    return std::ranges::all_of(host, [](T value) { return std::isfinite(static_cast<Accumulator<T>>(value)); });
  });
}

}  // namespace lyceum
