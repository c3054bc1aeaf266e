#include "train/routing_sums.h"

#include <algorithm>
#include <span>

namespace lyceum {

std::vector<RoutingSums> whole_routing(const Config& config, const Mesh& mesh, const std::vector<RoutingSums>& own) {
  std::vector<RoutingSums> layers = no_routing(config);
  if (layers.empty()) return layers;
  for (const RoutingSums& sums : own) {
    *std::ranges::find(layers, sums.layer, &RoutingSums::layer) = sums;
  }
  std::vector<std::int64_t> counts;
  std::vector<double> probability;
  for (const RoutingSums& layer : layers) {
    counts.insert(counts.end(), layer.counts.begin(), layer.counts.end());
    probability.insert(probability.end(), layer.probability.begin(), layer.probability.end());
  }
  // A layer has its sums on one stage and zeros on the others: the pipeline changes no bit.
  for (const ProcessGroup* group : {&mesh.data_tensor, &mesh.pipeline}) {
    group->all_reduce(std::span(counts));
    group->all_reduce(std::span(probability));
  }
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

std::vector<RoutingLog::Layer> logged_layers(const Config& config, std::span<const LayerPlacement> placement) {
  std::vector<RoutingLog::Layer> layers;
  for (const LayerPlacement& layer : placement) {
    layers.push_back({.layer = layer.layer,
                      .top_k = config.moe.top_k,
                      .expert_sizes = expert_widths(config.moe),
                      .expert_rank = {layer.ranks.owner.begin(), layer.ranks.owner.end()}});
  }
  return layers;
}

}  // namespace lyceum
