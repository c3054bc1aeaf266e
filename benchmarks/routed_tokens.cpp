#include "routed_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/random.h"

namespace lyceum {

namespace {

/// Returns valid choices with these counts that are not random: the experts in a list, each as often as it is chosen,
/// are dealt to tokens like cards. Entries t, t + tokens, t + 2 · tokens, … belong to token t. They differ, since no
/// expert has more than `tokens` entries.
std::vector<std::int32_t> dealt_choices(std::span<const std::int64_t> counts, std::int64_t top_k) {
  std::vector<std::int32_t> list;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    list.insert(list.end(), static_cast<std::size_t>(counts[e]), static_cast<std::int32_t>(e));
  }
  const std::size_t k = static_cast<std::size_t>(top_k), tokens = list.size() / k;
  std::vector<std::int32_t> choices;
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t j = 0; j < k; ++j) choices.push_back(list[t + j * tokens]);
  }
  return choices;
}

std::string purpose_of(std::int64_t layer, std::int64_t step, std::int64_t micro_batch) {
  return fmt::format("tokens of step {}, micro-batch {}, layer {}", step, micro_batch, layer);
}

}  // namespace

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

std::vector<std::int32_t> random_choices(std::span<const std::int64_t> counts, std::int64_t top_k,
                                         const std::string& purpose) {
  // Two random entries change places if both tokens then have different experts. All valid choices are equally likely
  // after many such steps, because a step and its inverse are. Each entry takes part in eight on average.
  std::vector<std::int32_t> choices = dealt_choices(counts, top_k);
  const Philox random(46, purpose);
  const std::size_t k = static_cast<std::size_t>(top_k), size = choices.size();
  const auto has = [&](std::size_t token, std::int32_t expert) {
    const auto first = choices.begin() + static_cast<std::ptrdiff_t>(token * k);
    return std::find(first, first + top_k, expert) != first + top_k;
  };
  const auto entry = [&](std::uint32_t word) { return static_cast<std::size_t>(std::uint64_t{word} * size >> 32); };
  for (std::size_t i = 0; i < 2 * size; ++i) {
    const std::array<std::uint32_t, 4> words = random.block(i);
    for (const std::size_t w : {0, 2}) {
      const std::size_t a = entry(words[w]), b = entry(words[w + 1]);
      if (!has(a / k, choices[b]) && !has(b / k, choices[a])) std::swap(choices[a], choices[b]);
    }
  }
  return choices;
}

RoutedStep routed_step(const RoutingLoad& load, const TokenShape& shape, std::int64_t step) {
  const std::int64_t tokens = shape.tokens * shape.ranks;
  RoutedStep result;
  result.counts.resize(static_cast<std::size_t>(shape.micro_batches));
  result.choices.resize(result.counts.size());
  const auto add = [&](std::int64_t micro_batch, std::span<const std::int32_t> choices) {
    std::vector<std::int64_t> counts(load.sizes.size());
    for (const std::int32_t e : choices) ++counts[static_cast<std::size_t>(e)];
    result.counts[static_cast<std::size_t>(micro_batch)].push_back(std::move(counts));
    const std::size_t own = static_cast<std::size_t>(shape.tokens * load.top_k);
    const auto mine = choices.subspan(static_cast<std::size_t>(shape.rank) * own, own);
    result.choices[static_cast<std::size_t>(micro_batch)].emplace_back(mine.begin(), mine.end());
  };
  for (std::int64_t l = 0; l < load.layers; ++l) {
    std::vector<std::int32_t> all;
    if (load.by_step) all = random_choices(counts_of_step(load, shape, l, step), load.top_k, purpose_of(l, step, 0));
    for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
      if (load.by_step) {
        const auto size = static_cast<std::size_t>(tokens * load.top_k);
        add(m, std::span(all).subspan(static_cast<std::size_t>(m) * size, size));
      } else {
        const auto counts = exact_counts(load.tokens(l, step, m), tokens, load.top_k);
        add(m, random_choices(counts, load.top_k, purpose_of(l, step, m)));
      }
    }
  }
  return result;
}

std::vector<std::int64_t> counts_of_step(const RoutingLoad& load, const TokenShape& shape, std::int64_t layer,
                                         std::int64_t step) {
  const std::int64_t tokens = shape.tokens * shape.ranks;
  if (load.by_step) return exact_counts(load.tokens(layer, step, 0), tokens * shape.micro_batches, load.top_k);
  std::vector<std::int64_t> sum(load.sizes.size());
  for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
    std::ranges::transform(sum, exact_counts(load.tokens(layer, step, m), tokens, load.top_k), sum.begin(),
                           std::plus{});
  }
  return sum;
}

std::int64_t remote_pairs(std::span<const std::int32_t> choices, std::int64_t top_k, const Placement& placement,
                          int rank) {
  std::int64_t pairs = 0;
  for (std::size_t first = 0; first < choices.size(); first += static_cast<std::size_t>(top_k)) {
    std::vector<bool> sent(static_cast<std::size_t>(placement.ranks()));
    for (const std::int32_t e : choices.subspan(first, static_cast<std::size_t>(top_k))) {
      sent[static_cast<std::size_t>(placement.owner[static_cast<std::size_t>(e)])] = true;
    }
    pairs += std::ranges::count(sent, true) - (sent[static_cast<std::size_t>(rank)] ? 1 : 0);
  }
  return pairs;
}

double expected_remote_pairs(std::int64_t top_k, const Placement& placement) {
  double sum = 0;  // over the ranks that have experts; each is remote for all other ranks
  for (int r = 0; r < placement.ranks(); ++r) {
    double none = 1;  // C(E − E_r, k) / C(E, k)
    for (std::int64_t j = 0; j < top_k; ++j) {
      const auto left = static_cast<double>(placement.experts() - j);
      none *= std::max(0.0, left - static_cast<double>(placement.experts_of(r).size())) / left;
    }
    sum += 1 - none;
  }
  return sum * (placement.ranks() - 1) / placement.ranks();
}

}  // namespace lyceum
