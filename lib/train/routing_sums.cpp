#include "train/routing_sums.h"

#include <algorithm>
#include <span>

namespace lyceum {

std::vector<RoutingSums> summed_over(const ProcessGroup& group, std::vector<RoutingSums> layers) {
  std::vector<std::int64_t> counts;
  std::vector<double> probability;
  for (const RoutingSums& layer : layers) {
    counts.insert(counts.end(), layer.counts.begin(), layer.counts.end());
    probability.insert(probability.end(), layer.probability.begin(), layer.probability.end());
  }
  if (counts.empty()) return layers;
  group.all_reduce(std::span(counts));
  group.all_reduce(std::span(probability));
  auto count = counts.begin();
  auto mean = probability.begin();
  for (RoutingSums& layer : layers) {
    std::copy_n(count, layer.counts.size(), layer.counts.begin());
    std::copy_n(mean, layer.probability.size(), layer.probability.begin());
    count += static_cast<std::ptrdiff_t>(layer.counts.size());
    mean += static_cast<std::ptrdiff_t>(layer.probability.size());
  }
  return layers;
}

std::vector<LayerRouting> routing_record(const std::vector<RoutingSums>& layers, std::int64_t tokens) {
  std::vector<LayerRouting> record;
  for (const RoutingSums& sums : layers) {
    LayerRouting layer{.layer = sums.layer,
                       .top_k = sums.top_k,
                       .experts = sums.experts,
                       .counts = sums.counts,
                       .mean_probability = {}};
    for (const double sum : sums.probability) {
      layer.mean_probability.push_back(static_cast<float>(sum / static_cast<double>(tokens)));
    }
    record.push_back(std::move(layer));
  }
  return record;
}

std::vector<RoutingLog::Layer> logged_layers(const Config& config, const Transformer& model) {
  std::vector<RoutingLog::Layer> layers;
  for (const auto& [layer, placement] : model.placements()) {
    layers.push_back({.layer = layer,
                      .top_k = config.moe.top_k,
                      .expert_sizes = expert_widths(config.moe),
                      .expert_rank = {placement->owner.begin(), placement->owner.end()}});
  }
  return layers;
}

}  // namespace lyceum
