#include "io/routing/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace lyceum {
namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// Adds counts[record, choice, :] to a load, and how many of them were dropped.
void add_counts(const RoutingHistory::Layer& layer, std::size_t record, std::int64_t choice, RoutedTokens& load) {
  const std::size_t row = (record * static_cast<std::size_t>(layer.top_k) + static_cast<std::size_t>(choice)) *
                          static_cast<std::size_t>(layer.experts);
  for (std::size_t e = 0; e < load.tokens.size(); ++e) {
    load.tokens[e] += layer.counts[row + e];
    if (layer.drops) load.dropped += layer.dropped[row + e];
  }
}

}  // namespace

bool has_dropped_counts(const RoutingHistory& history) {
  return std::ranges::any_of(history.layers, &RoutingHistory::Layer::drops);
}

namespace {

std::span<const std::int64_t> choosable(const RoutedTokens& load) {
  return std::span(load.tokens).subspan(static_cast<std::size_t>(load.always_on));
}

}  // namespace

std::int64_t RoutedTokens::total() const { return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}); }
std::int64_t RoutedTokens::max() const { return std::ranges::max(choosable(*this)); }
std::int64_t RoutedTokens::min() const { return std::ranges::min(choosable(*this)); }
std::size_t RoutedTokens::busiest() const {
  return static_cast<std::size_t>(std::max_element(tokens.begin(), tokens.end()) - tokens.begin());
}
double RoutedTokens::mean() const {
  return static_cast<double>(total()) / static_cast<double>(choosable(*this).size());
}

double RoutedTokens::dropped_share() const {
  return total() == 0 ? no_number : static_cast<double>(dropped) / static_cast<double>(total());
}

double RoutedTokens::max_over_min() const {
  if (max() == 0) return no_number;
  return min() == 0 ? std::numeric_limits<double>::infinity() : static_cast<double>(max()) / static_cast<double>(min());
}

double RoutedTokens::max_over_mean() const { return total() == 0 ? no_number : static_cast<double>(max()) / mean(); }

double RoutedTokens::variation() const {
  if (total() == 0) return no_number;
  double squares = 0;
  for (const std::int64_t n : choosable(*this))
    squares += (static_cast<double>(n) - mean()) * (static_cast<double>(n) - mean());
  return std::sqrt(squares / static_cast<double>(choosable(*this).size())) / mean();
}

double RoutedTokens::entropy() const {
  if (total() == 0) return no_number;
  if (choosable(*this).size() == 1) return 1;
  double sum = 0;
  for (const std::int64_t n : choosable(*this)) {
    const double share = static_cast<double>(n) / static_cast<double>(total());
    if (share > 0) sum -= share * std::log(share);
  }
  return sum / std::log(static_cast<double>(choosable(*this).size()));
}

double RoutedTokens::percentile(double share) const {
  if (total() == 0) return no_number;
  std::vector<std::int64_t> sorted(choosable(*this).begin(), choosable(*this).end());
  const auto position = sorted.begin() + std::llround(share * static_cast<double>(sorted.size() - 1));
  std::nth_element(sorted.begin(), position, sorted.end());
  return static_cast<double>(*position) / mean();
}

RecordRange select_records(const RoutingReader& log, std::optional<std::int64_t> from, std::optional<std::int64_t> to) {
  const std::vector<std::int64_t>& steps = log.steps();
  require_usage(!steps.empty(), "the routing log has no records yet");
  if (!from && !to) return {steps.size() - (steps.size() + 3) / 4, steps.size()};
  const auto begin = from ? std::lower_bound(steps.begin(), steps.end(), *from) : steps.begin();
  const auto end = to ? std::upper_bound(steps.begin(), steps.end(), *to) : steps.end();
  require_usage(begin < end, "no record in steps {} to {}: the log has steps {} to {}", from.value_or(steps.front()),
                to.value_or(steps.back()), steps.front(), steps.back());
  return {static_cast<std::size_t>(begin - steps.begin()), static_cast<std::size_t>(end - steps.begin())};
}

void ChosenWidth::add(const MixtureId& id, std::span<const std::int64_t> counts,
                      std::span<const std::int64_t> expert_sizes) {
  if (id.site != Site::ffn) return;
  const double mean =
      std::accumulate(expert_sizes.begin(), expert_sizes.end(), 0.0) / static_cast<double>(expert_sizes.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto tokens = static_cast<double>(counts[i]),
               width = static_cast<double>(expert_sizes[i % expert_sizes.size()]);
    choices_ += tokens;
    width_ += tokens * width;
    even_ += tokens * mean;
    varies_ = varies_ || width != mean;
  }
}

ChosenWidth chosen_width(const RoutingHistory& history, RecordRange range) {
  ChosenWidth width;
  for (const RoutingHistory::Layer& layer : history.layers) {
    const std::int64_t record = layer.top_k * layer.experts;
    for (std::size_t r = range.begin; r < range.end; ++r) {
      const std::int64_t* counts = layer.counts.data() + static_cast<std::int64_t>(r) * record;
      width.add(layer.id, {counts, static_cast<std::size_t>(record)}, layer.expert_sizes);
    }
  }
  return width;
}

StepBalance step_balance(const RoutingHistory::Layer& layer, std::size_t record) {
  return layer.steps.empty() ? StepBalance{} : layer.steps[record];
}

StepBalance step_balance(const RoutingHistory::Layer& layer, RecordRange range) {
  double tokens = 0, max_vio = 0, idle = 0;
  StepBalance result;
  for (std::size_t r = range.begin; r < range.end; ++r) {
    const StepBalance record = step_balance(layer, r);
    const auto weight = static_cast<double>(layer_load(layer, {r, r + 1}).total());
    if (std::isnan(record.max_vio_mean) || weight == 0) continue;
    tokens += weight;
    max_vio += weight * double{record.max_vio_mean};
    idle += weight * double{record.idle_mean};
    result.max_vio_max = std::fmax(result.max_vio_max, record.max_vio_max);
    result.idle_max = std::fmax(result.idle_max, record.idle_max);
  }
  if (tokens == 0) return {};
  result.max_vio_mean = static_cast<float>(max_vio / tokens);
  result.idle_mean = static_cast<float>(idle / tokens);
  return result;
}

bool has_step_balance(const RoutingHistory& history, RecordRange range) {
  return std::ranges::any_of(history.layers,
                             [&](const auto& layer) { return !std::isnan(step_balance(layer, range).max_vio_mean); });
}

ReplicaCounts replica_counts(const RoutingHistory::Layer& layer, RecordRange range) {
  ReplicaCounts sum;
  if (layer.replicas.empty()) return sum;
  for (std::size_t r = range.begin; r < range.end; ++r) sum.add(layer.replicas[r]);
  return sum;
}

bool has_replicas(const RoutingHistory& history, RecordRange range) {
  return std::ranges::any_of(history.layers, [&](const auto& layer) {
    const ReplicaCounts counts = replica_counts(layer, range);
    return std::ranges::any_of(counts.replicas, [](std::int64_t n) { return n > 0; });
  });
}

RoutedTokens layer_load(const RoutingHistory::Layer& layer, RecordRange range, std::optional<std::int64_t> choice) {
  RoutedTokens load{.id = layer.id, .choice = choice, .tokens = {}, .always_on = layer.always_on};
  load.tokens.resize(static_cast<std::size_t>(layer.experts));
  for (std::size_t r = range.begin; r < range.end; ++r) {
    for (std::int64_t k = choice.value_or(0); k < (choice ? *choice + 1 : layer.top_k); ++k) {
      add_counts(layer, r, k, load);
    }
  }
  return load;
}

std::vector<RoutedTokens> loads_by_choice(const RoutingHistory& history, RecordRange range) {
  std::vector<RoutedTokens> loads;
  for (const RoutingHistory::Layer& layer : history.layers) {
    for (std::int64_t k = 0; k < layer.top_k; ++k) loads.push_back(layer_load(layer, range, k));
  }
  return loads;
}

std::vector<RoutedTokens> loads_by_layer(const RoutingHistory& history, RecordRange range) {
  std::vector<RoutedTokens> loads;
  for (const RoutingHistory::Layer& layer : history.layers) loads.push_back(layer_load(layer, range, {}));
  return loads;
}

Information information(const RoutingHistory::Layer& layer, RecordRange range) {
  if (layer.mean_entropy.empty()) return {no_number, no_number};
  const auto experts = static_cast<std::size_t>(layer.experts);
  std::vector<double> mean(experts, 0.0);
  double all = 0, of_token = 0;
  for (std::size_t r = range.begin; r < range.end; ++r) {
    const auto first = layer.counts.begin() + static_cast<std::ptrdiff_t>(r) * layer.top_k * layer.experts;
    const auto tokens = static_cast<double>(std::accumulate(first, first + layer.experts, std::int64_t{0}));
    if (tokens == 0 || std::isnan(layer.mean_entropy[r])) continue;
    all += tokens;
    of_token += tokens * static_cast<double>(layer.mean_entropy[r]);
    for (std::size_t e = 0; e < experts; ++e) {
      mean[e] += tokens * static_cast<double>(layer.mean_probability[r * experts + e]);
    }
  }
  if (all == 0) return {no_number, no_number};
  double entropy = 0;
  for (const double sum : mean) {
    if (sum > 0) entropy -= sum / all * std::log(sum / all);
  }
  return {entropy, of_token / all};
}

bool has_information(const RoutingHistory& history, RecordRange range) {
  return std::ranges::any_of(history.layers,
                             [&](const auto& layer) { return !std::isnan(information(layer, range).entropy); });
}

}  // namespace lyceum
