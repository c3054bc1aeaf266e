#include "model/routing/routing_sums.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/copy.h"

namespace lyceum {

std::vector<RoutingSums> sum_routing_over_ranks(const Config& config, const Mesh& mesh,
                                                const std::vector<RoutingSums>& own) {
  std::vector<RoutingSums> layers = no_routing(config);
  if (layers.empty()) return layers;
  for (const RoutingSums& sums : own) {
    *std::ranges::find(layers, sums.id, &RoutingSums::id) = sums;
  }
  std::vector<std::int64_t> counts;
  std::vector<double> probability;
  for (const RoutingSums& layer : layers) {
    counts.insert(counts.end(), layer.counts.begin(), layer.counts.end());
    counts.insert(counts.end(), layer.dropped.begin(), layer.dropped.end());
    probability.insert(probability.end(), layer.probability.begin(), layer.probability.end());
    probability.push_back(layer.entropy);
  }
  // One stage has the sums of a layer and the others have zeros, so the pipeline changes no bit.
  for (const Axis axis : whole_model) {
    mesh.group(axis).all_reduce(std::span(counts));
    mesh.group(axis).all_reduce(std::span(probability));
  }
  auto count = counts.begin();
  auto mean = probability.begin();
  for (RoutingSums& layer : layers) {
    for (std::vector<std::int64_t>* numbers : {&layer.counts, &layer.dropped}) {
      std::copy_n(count, numbers->size(), numbers->begin());
      count += static_cast<std::ptrdiff_t>(numbers->size());
    }
    std::copy_n(mean, layer.probability.size(), layer.probability.begin());
    mean += static_cast<std::ptrdiff_t>(layer.probability.size());
    layer.entropy = *mean++;
  }
  return layers;
}

std::int64_t summed_loads(const Config& config) {
  std::int64_t numbers = 0;
  for (const Mixture& mixture : mixtures_of(config)) {
    numbers += mixture.choices() * (mixture.capacity_factor > 0 ? 2 : 1);
  }
  return numbers;
}

std::vector<RoutingSums> sum_loads_over_ranks(const Stream& stream, const Config& config, const Mesh& mesh,
                                              const std::vector<RoutingSums>& own) {
  std::vector<RoutingSums> all;
  for (const RoutingSums& none : no_routing(config)) {
    const auto sums = std::ranges::find(own, none.id, &RoutingSums::id);
    all.push_back(loads_of(sums == own.end() ? none : *sums));
  }
  if (all.empty() || mesh.world.size() == 1) return all;
  std::vector<std::int64_t> numbers;
  for (const RoutingSums& loads : all) {
    numbers.insert(numbers.end(), loads.counts.begin(), loads.counts.end());
    numbers.insert(numbers.end(), loads.dropped.begin(), loads.dropped.end());
  }
  const Tensor summed = tensor_of(stream, {std::ssize(numbers)}, numbers);
  for (const Axis axis : whole_model) mesh.group(axis).all_reduce_async(summed).wait();
  numbers = values_of<std::int64_t>(stream, summed);
  auto number = numbers.begin();
  for (RoutingSums& loads : all) {
    for (std::vector<std::int64_t>* each : {&loads.counts, &loads.dropped}) {
      std::copy_n(number, each->size(), each->begin());
      number += static_cast<std::ptrdiff_t>(each->size());
    }
  }
  return all;
}

void round_to_exact_sums(std::vector<RoutingSums>& sums) {
  constexpr double unit = 0x1p-20;
  const auto round = [](double& sum) { sum = std::nearbyint(sum / unit) * unit; };
  for (RoutingSums& mixture : sums) {
    std::ranges::for_each(mixture.probability, round);
    round(mixture.entropy);
  }
}

void add(std::vector<RoutingSums>& sums, const std::vector<RoutingSums>& more) {
  if (sums.empty()) {
    sums = more;
    return;
  }
  for (std::size_t layer = 0; layer < more.size(); ++layer) {
    RoutingSums& sum = sums[layer];
    for (std::size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += more[layer].counts[i];
    for (std::size_t i = 0; i < sum.probability.size(); ++i) sum.probability[i] += more[layer].probability[i];
    sum.entropy += more[layer].entropy;
    for (std::size_t i = 0; i < sum.dropped.size(); ++i) sum.dropped[i] += more[layer].dropped[i];
  }
}

void add(std::vector<ReplicaSums>& sums, const std::vector<ReplicaSums>& more) {
  for (const ReplicaSums& each : more) {
    const auto found = std::ranges::find(sums, each.id, &ReplicaSums::id);
    if (found == sums.end()) {
      sums.push_back(each);
    } else {
      found->counts.add(each.counts);
    }
  }
}

std::vector<ReplicaSums> sum_replica_counts_over_ranks(const Config& config, const Mesh& mesh,
                                                       const std::vector<ReplicaSums>& own) {
  std::vector<ReplicaSums> all;
  std::vector<std::int64_t> numbers;
  for (const Mixture& mixture : mixtures_of(config)) {
    if (!mixture.placed()) continue;
    const auto experts = static_cast<std::size_t>(mixture.choices());
    ReplicaCounts counts{.replicas = std::vector<std::int64_t>(experts), .tokens = std::vector<std::int64_t>(experts)};
    if (const auto found = std::ranges::find(own, mixture.id, &ReplicaSums::id); found != own.end()) {
      counts = found->counts;
    }
    numbers.insert(numbers.end(), counts.replicas.begin(), counts.replicas.end());
    numbers.insert(numbers.end(), counts.tokens.begin(), counts.tokens.end());
    numbers.insert(numbers.end(), {counts.kept, counts.sent, counts.bytes});
    all.push_back({mixture.id, std::move(counts)});
  }
  for (const Axis axis : whole_model) mesh.group(axis).all_reduce(std::span(numbers));
  auto number = numbers.begin();
  for (auto& [id, counts] : all) {
    for (std::vector<std::int64_t>* const each : {&counts.replicas, &counts.tokens}) {
      std::copy_n(number, each->size(), each->begin());
      number += std::ssize(*each);
    }
    for (std::int64_t* const each : {&counts.kept, &counts.sent, &counts.bytes}) *each = *number++;
  }
  return all;
}

void StepBalanceSums::add(const RoutingSums& step) {
  const double max_vio = imbalance(step) - 1;
  const auto idle = static_cast<double>(idle_experts(step));
  max_vio_max = steps == 0 ? max_vio : std::max(max_vio_max, max_vio);
  idle_max = std::max(idle_max, idle);
  max_vio_sum += max_vio;
  idle_sum += idle;
  ++steps;
}

StepBalance StepBalanceSums::balance() const {
  if (steps == 0) return {};
  return {.max_vio_mean = static_cast<float>(max_vio_sum / static_cast<double>(steps)),
          .max_vio_max = static_cast<float>(max_vio_max),
          .idle_mean = static_cast<float>(idle_sum / static_cast<double>(steps)),
          .idle_max = static_cast<float>(idle_max)};
}

std::vector<LayerRouting> routing_record(const std::vector<RoutingSums>& layers, std::int64_t tokens,
                                         std::span<const StepBalanceSums> steps,
                                         std::span<const ReplicaSums> replicas) {
  std::vector<LayerRouting> record;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const RoutingSums& sums = layers[l];
    LayerRouting layer{.id = sums.id,
                       .top_k = sums.top_k,
                       .experts = sums.experts,
                       .counts = sums.counts,
                       .mean_probability = {},
                       .mean_entropy = static_cast<float>(sums.entropy / static_cast<double>(tokens)),
                       .dropped = sums.dropped,
                       .steps = steps.empty() ? StepBalance{} : steps[l].balance()};
    for (const double sum : sums.probability) {
      layer.mean_probability.push_back(static_cast<float>(sum / static_cast<double>(tokens)));
    }
    const auto of_mixture = std::ranges::find(replicas, sums.id, &ReplicaSums::id);
    if (of_mixture != replicas.end()) layer.replicas = of_mixture->counts;
    record.push_back(std::move(layer));
  }
  return record;
}

std::vector<RoutingLog::Layer> logged_layers(const Config& config, std::span<const MixturePlacement> placement) {
  std::vector<RoutingLog::Layer> layers;
  for (const Mixture& mixture : mixtures_of(config)) {
    RoutingLog::Layer layer{.id = mixture.id,
                            .top_k = mixture.k,
                            .drops = mixture.capacity_factor > 0,
                            .always_on = mixture.never_chosen(),
                            .expert_sizes = mixture.widths,
                            .expert_rank = std::vector<std::int64_t>(static_cast<std::size_t>(mixture.weighted()), 0)};
    const auto placed = std::ranges::find(placement, mixture.id, &MixturePlacement::id);
    if (placed != placement.end()) std::ranges::copy(placed->ranks.owner, layer.expert_rank.begin());
    layer.expert_rank.resize(mixture.widths.size(), -1);
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace lyceum
