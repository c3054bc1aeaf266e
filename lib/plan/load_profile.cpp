#include "plan/load_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "io/routing/history.h"
#include "io/routing/merge.h"
#include "io/routing/stats.h"
#include "io/text/table.h"

namespace lyceum {

namespace {

constexpr const char* zipf_prefix = "zipf:";
constexpr double most_exponent = 8;
constexpr std::uint64_t popularity_seed = 46;

/// Returns the shares of `count` experts in order of popularity, see read_load_profile(). They add up to 1.
std::vector<double> zipf_shares(std::int64_t count, std::int64_t k, double exponent) {
  std::vector<double> shares(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i] = std::pow(static_cast<double>(i + 1), -exponent);
  const double most = 1 / static_cast<double>(k);
  for (std::size_t first = 0; first < shares.size(); ++first) {  // the experts before this one have `most`
    const double rest = std::accumulate(shares.begin() + static_cast<std::ptrdiff_t>(first), shares.end(), 0.0);
    const double factor = (1 - static_cast<double>(first) * most) / rest;
    if (factor * shares[first] <= most) {
      std::for_each(shares.begin() + static_cast<std::ptrdiff_t>(first), shares.end(),
                    [&](double& share) { share *= factor; });
      break;
    }
    shares[first] = most;
  }
  return shares;
}

LoadProfile zipf_profile(const std::string& text, const std::vector<Mixture>& mixtures) {
  const std::string number = text.substr(std::string(zipf_prefix).size());
  char* end = nullptr;
  const double exponent = std::strtod(number.c_str(), &end);
  require_usage(!number.empty() && *end == '\0' && exponent >= 0 && exponent <= most_exponent,
                "--load {}: the exponent after zipf: must be a number from 0 to {:.0f}, for example zipf:0.8", text,
                most_exponent);
  LoadProfile profile{.description = fmt::format("Zipf, exponent {:g}", exponent), .loads = {}};
  for (const Mixture& mixture : mixtures) {
    const std::vector<double> shares = zipf_shares(mixture.choices(), mixture.k, exponent);
    const Permutation order(popularity_seed, fmt::format("popularity/{}", mixture.id.layer), shares.size());
    ExpertLoad& load = profile.loads.emplace_back(ExpertLoad{.id = mixture.id, .tokens = shares});
    for (std::size_t i = 0; i < shares.size(); ++i) {
      load.tokens[order(i)] = shares[i] * static_cast<double>(shares.size());
    }
  }
  return profile;
}

/// Returns the tokens of each expert of one router, without choices beyond capacity, over the mean of all choices.
/// Empty if no token was routed. `merged` has one record.
std::vector<double> tokens_of(const RoutingHistory::Layer& merged) {
  std::vector<double> tokens(static_cast<std::size_t>(merged.experts));
  double mean = 0;
  for (std::size_t i = 0; i < merged.counts.size(); ++i) {
    const std::int64_t dropped = merged.dropped.empty() ? 0 : merged.dropped[i];
    tokens[i % tokens.size()] += static_cast<double>(merged.counts[i] - dropped);
    mean += static_cast<double>(merged.counts[i]) / static_cast<double>(merged.experts);
  }
  if (!(mean > 0)) return {};
  for (double& each : tokens) each /= mean;
  return tokens;
}

/// Throws a bad_input Error unless a router of the log `name` is that of the mixture.
void require_router(const std::string& name, const RoutingHistory::Layer& router, const Mixture& mixture) {
  const std::int64_t layer = router.id.layer;
  require_input(router.experts == mixture.choices(),
                "{}: layer {} has {} experts, this model has {}: use a log of this model", name, layer, router.experts,
                mixture.choices());
  require_input(router.top_k == mixture.k,
                "{}: tokens choose {} experts in layer {}, in this model {} (moe.top_k): use a log of this model", name,
                router.top_k, layer, mixture.k);
  const auto [logged, own] = std::ranges::mismatch(router.expert_sizes, mixture.widths);
  require_input(own == mixture.widths.end(),
                "{}: expert {} of layer {} has width {}, in this model {} (moe.expert_sizes): use a log of this model",
                name, own - mixture.widths.begin(), layer, *logged, *own);
}

LoadProfile logged_profile(std::filesystem::path file, const Config& config, const std::vector<Mixture>& mixtures) {
  if (std::filesystem::is_directory(file)) file /= "routing.h5";
  const std::string name = file.string();
  const RoutingReader log(file);
  require_input(!log.steps().empty(), "{}: has no records yet", name);
  const RecordRange range = select_records(log);
  const RoutingHistory merged = merged_records(log, range);
  LoadProfile profile{.description = fmt::format("{}, {} up to step {}", name,
                                                 count_text(static_cast<std::int64_t>(range.size()), "record"),
                                                 log.steps()[range.end - 1]),
                      .loads = {}};
  for (const RoutingHistory::Layer& layer : merged.layers) {
    if (layer.id.site != Site::ffn || layer.always_on > 0) continue;
    const auto mixture = std::ranges::find(mixtures, layer.id, &Mixture::id);
    require_input(mixture != mixtures.end(), "{}: layer {} has experts, but not in this model: use a log of this model",
                  name, layer.id.layer);
    require_router(name, layer, *mixture);
    std::vector<double> tokens = tokens_of(layer);
    require_input(!tokens.empty(), "{}: no token was routed in layer {} in the records up to step {}", name,
                  layer.id.layer, log.steps()[range.end - 1]);
    profile.loads.push_back({.id = layer.id, .tokens = std::move(tokens)});
  }
  for (const Mixture& mixture : mixtures) {
    const bool found = std::ranges::find(profile.loads, mixture.id, &ExpertLoad::id) != profile.loads.end();
    require_input(found || mixture.id.layer >= config.model.layers,
                  "{}: has no experts in layer {}, this model has {}: use a log of this model", name, mixture.id.layer,
                  mixture.choices());
  }
  return profile;
}

}  // namespace

LoadProfile read_load_profile(const std::string& text, const Config& config) {
  std::vector<Mixture> mixtures = mixtures_of(config);
  std::erase_if(mixtures, [](const Mixture& mixture) { return !mixture.placed(); });
  require_usage(!mixtures.empty(), "--load {}: the model has no routed experts (moe.experts)", text);
  return text.starts_with(zipf_prefix) ? zipf_profile(text, mixtures) : logged_profile(text, config, mixtures);
}

}  // namespace lyceum
