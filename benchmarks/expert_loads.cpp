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
          .by_step = false,
          .sizes = std::move(sizes),
          .tokens = tokens};
}

RoutingLoad logged_load(const std::filesystem::path& file, const LogWindow& window, std::int64_t layers) {
  auto history = std::make_shared<RoutingHistory>(read_routing(file));
  std::erase_if(history->layers, [](const RoutingHistory::Layer& layer) { return layer.id.site != Site::ffn; });
  const auto used = std::min<std::size_t>(static_cast<std::size_t>(layers), history->layers.size());
  const std::int64_t begin = window.first - window.past, end = window.first + window.steps,
                     records = std::ssize(history->steps);
  require_input(used > 0 && records > 0, "{} has no records of a router of experts", file.string());
  require_usage(begin >= 0 && end <= records,
                "{} has {} records, but {} steps from record {} on, and {} before them, need the records {} to {}: "
                "choose --first and --rounds, or log more steps (routing.every = 1)",
                file.string(), records, window.steps, window.first, window.past, begin, end - 1);
  history->layers.resize(used);
  const RoutingHistory::Layer& all = history->layers.front();
  for (const RoutingHistory::Layer& layer : history->layers) {
    require_input(layer.experts == all.experts && layer.top_k == all.top_k && layer.expert_sizes == all.expert_sizes,
                  "{}: layers {} and {} have different experts", file.string(), all.id.layer, layer.id.layer);
  }
  const auto tokens = [history, first = window.first](std::int64_t layer, std::int64_t step, std::int64_t) {
    const std::int64_t record = first + step;
    require(record >= 0 && record < std::ssize(history->steps), "step {} is not in the routing log", step);
    return tokens_of_record(history->layers[static_cast<std::size_t>(layer)], static_cast<std::size_t>(record));
  };
  return {.name = file.parent_path().filename().string(),
          .top_k = all.top_k,
          .layers = static_cast<std::int64_t>(used),
          .by_step = true,
          .sizes = std::vector<double>(all.expert_sizes.begin(), all.expert_sizes.end()),
          .tokens = tokens};
}

}  // namespace lyceum
