#include "model/routing/routing_statistics.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace lyceum {

RoutingSums no_routing(const Mixture& mixture) {
  const auto choices = static_cast<std::size_t>(mixture.choices());
  const std::size_t counts = static_cast<std::size_t>(mixture.k) * choices;
  return {.id = mixture.id,
          .top_k = mixture.k,
          .experts = mixture.choices(),
          .always_on = mixture.never_chosen(),
          .counts = std::vector<std::int64_t>(counts, 0),
          .probability = std::vector<double>(choices, 0.0),
          .dropped = std::vector<std::int64_t>(mixture.capacity_factor > 0 ? counts : 0, 0)};
}

std::vector<RoutingSums> no_routing(const Config& config) {
  std::vector<RoutingSums> all;
  for (const Mixture& mixture : mixtures_of(config)) all.push_back(no_routing(mixture));
  return all;
}

namespace {

/// Returns the sum over the k choices, [experts], of `counts` [k · experts].
std::vector<std::int64_t> sum_over_choices(std::span<const std::int64_t> counts, std::int64_t experts) {
  std::vector<std::int64_t> load(static_cast<std::size_t>(experts), 0);
  for (std::size_t i = 0; i < counts.size(); ++i) load[i % load.size()] += counts[i];
  return load;
}

}  // namespace

RoutingSums loads_of(const RoutingSums& sums) {
  RoutingSums loads{.id = sums.id,
                    .top_k = 1,
                    .experts = sums.experts,
                    .always_on = sums.always_on,
                    .counts = sum_over_choices(sums.counts, sums.experts),
                    .probability = {}};
  if (!sums.dropped.empty()) loads.dropped = sum_over_choices(sums.dropped, sums.experts);
  return loads;
}

double imbalance(const RoutingSums& sums) {
  const std::vector<std::int64_t> load = sum_over_choices(sums.counts, sums.experts);
  const std::int64_t total = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  if (total == 0) return 0;
  return static_cast<double>(*std::max_element(load.begin(), load.end())) *
         static_cast<double>(sums.experts - sums.always_on) / static_cast<double>(total);
}

std::int64_t idle_experts(const RoutingSums& sums) {
  const std::vector<std::int64_t> load = sum_over_choices(sums.counts, sums.experts);
  return std::count(load.begin() + sums.always_on, load.end(), 0);
}

std::int64_t idle_experts(const std::vector<RoutingSums>& mixtures) {
  std::int64_t idle = 0;
  for (const RoutingSums& sums : mixtures) idle += idle_experts(sums);
  return idle;
}

}  // namespace lyceum
