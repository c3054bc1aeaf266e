#include "train/run/placement_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "config/names.h"
#include "io/text/table.h"
#include "model/ffn/experts.h"

namespace lyceum {

namespace {

constexpr int most_ranks_shown = 32;

/// "0-3, 7"
std::string text_of(std::span<const std::int32_t> experts) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < experts.size(); first = last + 1) {
    last = first;
    while (last + 1 < experts.size() && experts[last + 1] == experts[last] + 1) ++last;
    text += fmt::format("{}{}", first ? ", " : "", experts[first]);
    if (last > first) text += fmt::format("{}{}", last > first + 1 ? "-" : ", ", experts[last]);
  }
  return text;
}

/// Which experts a rank has, where they are the same in all layers; else how many.
std::string experts_text(std::span<const MixturePlacement> layers, int rank) {
  const std::span<const std::int32_t> experts = layers[0].ranks.experts_of(rank);
  std::size_t least = experts.size(), most = experts.size();
  bool same = true;
  for (const MixturePlacement& layer : layers) {
    const std::span<const std::int32_t> others = layer.ranks.experts_of(rank);
    same = same && std::ranges::equal(experts, others);
    least = std::min(least, others.size());
    most = std::max(most, others.size());
  }
  if (same) return text_of(experts);
  return least == most ? fmt::format("{} per layer", most) : fmt::format("{} to {} per layer", least, most);
}

/// FLOPs of every rank over their mean; all 1 where there are none.
std::vector<double> shares(const Config& config, const MixturePlacement& layer, std::span<const ExpertLoad> measured) {
  const std::vector<double> costs = expert_costs(mixture_of(config, layer.id), measured);
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / layer.ranks.ranks();
  std::vector<double> shares(static_cast<std::size_t>(layer.ranks.ranks()), mean > 0 ? 0.0 : 1.0);
  for (std::size_t e = 0; e < layer.ranks.owner.size() && mean > 0; ++e) {
    shares[static_cast<std::size_t>(layer.ranks.owner[e])] += costs[e] / mean;
  }
  return shares;
}

std::vector<std::string> rows(const Config& config, std::span<const MixturePlacement> layers,
                              const std::vector<double>& flops) {
  std::vector<std::int64_t> width(flops.size(), 0);  // of a rank's experts, over all layers
  for (const MixturePlacement& layer : layers) {
    const Mixture mixture = mixture_of(config, layer.id);
    for (std::size_t e = 0; e < layer.ranks.owner.size(); ++e) {
      width[static_cast<std::size_t>(layer.ranks.owner[e])] += mixture.widths[e];
    }
  }
  Table table({">expert rank", "experts", ">parameters", ">FLOPs / mean"});
  for (std::size_t rank = 0; rank < flops.size(); ++rank) {
    table.add({fmt::to_string(rank), experts_text(layers, static_cast<int>(rank)),
               human_count(static_cast<double>(expert_column(config) * width[rank])),
               fmt::format("{:.3f}", flops[rank])});
  }
  return table.lines();
}

}  // namespace

std::vector<std::string> placement_lines(const Config& config, std::span<const MixturePlacement> layers,
                                         std::span<const ExpertLoad> measured) {
  if (layers.empty()) return {};
  const int ranks = layers[0].ranks.ranks();
  const auto number = static_cast<double>(layers.size());
  std::vector<double> flops(static_cast<std::size_t>(ranks), 0.0);
  double busiest = 0, worst = 0;
  for (const MixturePlacement& layer : layers) {
    const std::vector<double> own = shares(config, layer, measured);
    for (std::size_t r = 0; r < own.size(); ++r) flops[r] += own[r] / number;
    const double most = *std::max_element(own.begin(), own.end());
    busiest += most / number;
    worst = std::max(worst, most);
  }
  std::vector<std::string> lines;
  if (ranks <= most_ranks_shown) lines = rows(config, layers, flops);
  lines.push_back(fmt::format(
      "placement  {}, {}: the busiest of {} expert ranks has {:.3f} times the mean FLOPs, {:.3f} in the worst of {}",
      name_of(config.parallel.placement), measured.empty() ? "assuming an even load" : "by the measured load", ranks,
      busiest, worst, count_text(std::ssize(layers), "layer")));
  return lines;
}

}  // namespace lyceum
