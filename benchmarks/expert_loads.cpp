#include "expert_loads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "io/routing/history.h"

namespace lyceum {

namespace {

constexpr std::array modse_widths{6912, 768, 6144, 1536, 4608, 3072, 3840, 3840};  // [MoDSE, Table 1]

/// Returns the tokens of each expert, summed over the choices of a record.
std::vector<double> tokens_of_record(const RoutingHistory::Layer& layer, std::size_t record) {
  std::vector<double> tokens(static_cast<std::size_t>(layer.experts));
  const std::size_t size = static_cast<std::size_t>(layer.top_k) * tokens.size();
  for (std::size_t i = 0; i < size; ++i) {
    tokens[i % tokens.size()] += static_cast<double>(layer.counts[record * size + i]);
  }
  return tokens;
}

}  // namespace

double RoutingLoad::mean_size() const {
  return std::reduce(sizes.begin(), sizes.end()) / static_cast<double>(sizes.size());
}

RoutingLoad zipf_load(const LoadShape& shape, double exponent, std::int64_t drift, bool uneven) {
  require_usage(exponent >= 0 && drift > 0, "a Zipf load with exponent {} that drifts every {} micro-batches", exponent,
                drift);
  require_usage(!uneven || shape.experts % std::ssize(modse_widths) == 0,
                "{} experts of uneven width: the number must be a multiple of {}", shape.experts, modse_widths.size());
  std::vector<double> sizes(static_cast<std::size_t>(shape.experts), 1);
  for (std::size_t e = 0; uneven && e < sizes.size(); ++e) sizes[e] = modse_widths[e % modse_widths.size()];
  const auto tokens = [=](std::int64_t layer, std::int64_t step, std::int64_t micro_batch) {
    const Permutation order(46, fmt::format("popularity/{}", layer), static_cast<std::uint64_t>(shape.experts));
    const std::int64_t number = step * shape.micro_batches + micro_batch,
                       places = number >= 0 ? number / drift : (number + 1) / drift - 1;
    std::vector<double> relative(static_cast<std::size_t>(shape.experts));
    for (std::int64_t i = 0; i < shape.experts; ++i) {
      const std::int64_t rank = ((i - places) % shape.experts + shape.experts) % shape.experts;
      relative[order(static_cast<std::uint64_t>(i))] = std::pow(static_cast<double>(rank + 1), -exponent);
    }
    return relative;
  };
  return {.name = fmt::format("{}{}", exponent == 0 ? "even" : fmt::format("zipf {:g}", exponent),
                              uneven ? ", uneven widths" : ""),
          .top_k = shape.top_k,
          .layers = shape.layers,
          .sizes = std::move(sizes),
          .tokens = tokens};
}

RoutingLoad logged_load(const std::filesystem::path& file, std::int64_t first, std::int64_t layers) {
  auto history = std::make_shared<RoutingHistory>(read_routing(file));
  std::erase_if(history->layers, [](const RoutingHistory::Layer& layer) { return layer.id.site != Site::ffn; });
  const auto used = std::min<std::size_t>(static_cast<std::size_t>(layers), history->layers.size());
  require_input(used > 0 && !history->steps.empty(), "{} has no records of a router of experts", file.string());
  history->layers.resize(used);
  const RoutingHistory::Layer& all = history->layers.front();
  for (const RoutingHistory::Layer& layer : history->layers) {
    require_input(layer.experts == all.experts && layer.top_k == all.top_k && layer.expert_sizes == all.expert_sizes,
                  "{}: layers {} and {} have different experts", file.string(), all.id.layer, layer.id.layer);
  }
  const auto tokens = [history, first](std::int64_t layer, std::int64_t step, std::int64_t) {
    const std::int64_t record = std::clamp<std::int64_t>(first + step, 0, std::ssize(history->steps) - 1);
    return tokens_of_record(history->layers[static_cast<std::size_t>(layer)], static_cast<std::size_t>(record));
  };
  return {.name = file.parent_path().filename().string(),
          .top_k = all.top_k,
          .layers = static_cast<std::int64_t>(used),
          .sizes = std::vector<double>(all.expert_sizes.begin(), all.expert_sizes.end()),
          .tokens = tokens};
}

std::vector<std::int64_t> exact_counts(std::span<const double> relative, std::int64_t tokens, std::int64_t top_k) {
  require(std::ranges::count_if(relative, [](double r) { return r > 0; }) >= top_k,
          "{} choices of fewer experts per token", top_k);
  std::vector<double> quota(relative.begin(), relative.end());
  std::vector<bool> full(quota.size());
  for (bool changed = true; changed;) {  // an expert gets at most `tokens`; the others share the rest in proportion
    changed = false;
    double left = static_cast<double>(tokens * top_k), sum = 0;
    for (std::size_t e = 0; e < quota.size(); ++e) (full[e] ? left : sum) += full[e] ? -quota[e] : relative[e];
    for (std::size_t e = 0; e < quota.size(); ++e) {
      if (full[e]) continue;
      quota[e] = sum > 0 ? relative[e] / sum * left : 0;
      if (quota[e] < static_cast<double>(tokens)) continue;
      quota[e] = static_cast<double>(tokens);
      full[e] = changed = true;
    }
  }
  std::vector<std::int64_t> counts;
  for (const double q : quota) counts.push_back(std::min(tokens, static_cast<std::int64_t>(q)));
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t e) { return quota[e] - std::floor(quota[e]); });
  std::int64_t left = tokens * top_k - std::reduce(counts.begin(), counts.end());
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size()) {
    if (counts[order[i]] == tokens) continue;
    ++counts[order[i]];
    --left;
  }
  return counts;
}

std::vector<std::int32_t> choices_with(std::span<const std::int64_t> counts, std::int64_t top_k, std::int64_t first,
                                       std::int64_t tokens, const std::string& purpose) {
  // The experts in a list, each as often as it is chosen, are dealt to tokens like cards: entries t, t + all,
  // t + 2 · all, … belong to token t. They differ, since no expert has more than `all` entries.
  std::vector<std::int32_t> list;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    list.insert(list.end(), static_cast<std::size_t>(counts[e]), static_cast<std::int32_t>(e));
  }
  const std::size_t all = list.size() / static_cast<std::size_t>(top_k);
  const Permutation order(46, purpose, all);
  std::vector<std::int32_t> choices;
  for (std::int64_t t = first; t < first + tokens; ++t) {
    const auto token = static_cast<std::size_t>(order(static_cast<std::uint64_t>(t)));
    for (std::size_t j = 0; j < static_cast<std::size_t>(top_k); ++j) choices.push_back(list[token + j * all]);
  }
  return choices;
}

}  // namespace lyceum
