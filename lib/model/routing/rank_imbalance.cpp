#include "model/routing/rank_imbalance.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "parallel/expert/rebalance.h"

namespace lyceum {

RankImbalance rank_imbalance(std::span<const Mixture> mixtures, std::span<const MixturePlacement> placement,
                             std::span<const RoutingSums> loads) {
  if (placement.empty()) return {};
  RankImbalance all{.mean = 0, .worst = 0};
  for (const MixturePlacement& layer : placement) {
    const auto mixture = std::ranges::find(mixtures, layer.id, &Mixture::id);
    const auto load = std::ranges::find(loads, layer.id, &RoutingSums::id);
    require(mixture != mixtures.end() && load != loads.end(), "the experts of layer {} are placed, but have no load",
            label_of(layer.id));
    std::vector<double> flops(layer.ranks.owner.size());
    for (std::size_t e = 0; e < flops.size(); ++e) {
      const std::int64_t dropped = load->dropped.empty() ? 0 : load->dropped[e];  // no expert computes these
      flops[e] = static_cast<double>(load->counts[e] - dropped) * static_cast<double>(mixture->widths[e]);
    }
    const double own = busiest_over_mean(layer.ranks, flops);
    all.mean += own / static_cast<double>(placement.size());
    all.worst = std::max(all.worst, own);
  }
  return all;
}

}  // namespace lyceum
