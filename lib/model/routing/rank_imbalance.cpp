#include "model/routing/rank_imbalance.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/expert/rebalance.h"

namespace lyceum {

RankImbalance rank_imbalance(std::span<const Mixture> mixtures, std::span<const MixturePlacement> placement,
                             std::span<const RoutingSums> loads, std::span<const MovedFlops> moved) {
  if (placement.empty()) return {};
  RankImbalance all{.mean = 0, .worst = 0};
  for (const MixturePlacement& layer : placement) {
    const auto mixture = std::ranges::find(mixtures, layer.id, &Mixture::id);
    const auto load = std::ranges::find(loads, layer.id, &RoutingSums::id);
    const auto replicas = std::ranges::find(moved, layer.id, &MovedFlops::id);
    require(mixture != mixtures.end() && load != loads.end(), "the experts of layer {} are placed, but have no load",
            label_of(layer.id));
    std::vector<double> flops(static_cast<std::size_t>(layer.ranks.ranks()));
    for (std::size_t e = 0; e < layer.ranks.owner.size(); ++e) {
      const std::int64_t dropped = load->dropped.empty() ? 0 : load->dropped[e];  // no expert computes these
      flops[static_cast<std::size_t>(layer.ranks.owner[e])] +=
          static_cast<double>(load->counts[e] - dropped) * static_cast<double>(mixture->widths[e]);
    }
    if (replicas != moved.end()) {
      require(replicas->of_ranks.size() == flops.size(), "replicas of layer {} are on {} ranks, not {}",
              label_of(layer.id), replicas->of_ranks.size(), flops.size());
      for (std::size_t rank = 0; rank < flops.size(); ++rank) {
        flops[rank] += static_cast<double>(replicas->of_ranks[rank]);
      }
    }
    const double own = busiest_over_mean(flops);
    all.mean += own / static_cast<double>(placement.size());
    all.worst = std::max(all.worst, own);
  }
  return all;
}

}  // namespace lyceum
