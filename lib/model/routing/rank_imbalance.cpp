#include "model/routing/rank_imbalance.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/expert/rebalance.h"

namespace lyceum {

RankImbalance rank_imbalance(std::span<const Mixture> mixtures, std::span<const MixturePlacement> placement,
                             std::span<const ExpertLoad> load) {
  if (placement.empty()) return {};
  RankImbalance all{.mean = 0, .worst = 0};
  for (const MixturePlacement& layer : placement) {
    const auto mixture = std::ranges::find(mixtures, layer.id, &Mixture::id);
    require(mixture != mixtures.end(), "the experts of layer {} are placed, but unknown", label_of(layer.id));
    const double own = busiest_over_mean(layer.ranks, weighted_costs(*mixture, load));
    all.mean += own / static_cast<double>(placement.size());
    all.worst = std::max(all.worst, own);
  }
  return all;
}

}  // namespace lyceum
