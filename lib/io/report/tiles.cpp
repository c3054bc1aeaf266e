#include "io/report/tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "core/real_text.h"
#include "io/report/chart.h"
#include "io/routing/stats.h"

namespace lyceum {

namespace {

/// Returns the mean of the finite values among the last `count` points; NaN if there are none.
double mean_of_last(const std::vector<MetricPoint>& points, std::size_t count) {
  double sum = 0;
  std::int64_t finite = 0;
  for (std::size_t i = points.size() - std::min(points.size(), count); i < points.size(); ++i) {
    if (!std::isfinite(points[i].value)) continue;
    sum += points[i].value;
    ++finite;
  }
  return finite ? sum / static_cast<double>(finite) : no_value;
}

std::string tile(std::string_view name, const std::string& value) {
  return fmt::format("<div class=\"tile\"><span>{}</span><strong>{}</strong></div>\n", name, value);
}

/// Returns the mean over layers of a member of StepBalance; NaN if it is known for no layer.
double mean_of_layers(const RoutingDigest& routing, float StepBalance::*number) {
  double sum = 0;
  std::int64_t layers = 0;
  for (const RoutingHistory::Layer& layer : routing.selected.layers) {
    const auto value = double{step_balance(layer, 0).*number};
    if (std::isnan(value)) continue;
    sum += value;
    ++layers;
  }
  return layers ? sum / static_cast<double>(layers) : no_value;
}

/// Returns the mean number of idle experts of a layer in a step: "3.2 of 64", or "2.5 of 8 to 64" if the layers differ.
std::string idle_in_a_step(const RoutingDigest& routing) {
  const auto [least, most] =
      std::ranges::minmax(routing.selected.layers | std::views::transform(&RoutingHistory::Layer::choosable));
  const std::string all = least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
  return fmt::format("{} of {}", real_text(mean_of_layers(routing, &StepBalance::idle_mean), ".1f"), all);
}

/// Returns the number of experts of all layers that are starved in the newest record: "35 of 1,536".
std::string starved_now(const RoutingDigest& routing) {
  std::int64_t idle = 0, all = 0;
  for (const RoutingHistory::Layer& layer : routing.selected.layers) all += layer.choosable();
  for (const std::vector<StarvedSpan>& spans : routing.starved) {
    idle += std::ranges::count(spans, routing.steps.size(), &StarvedSpan::end);
  }
  return fmt::format("{} of {}", grouped_number(idle), grouped_number(all));
}

}  // namespace

std::string number_tiles(const ReportInput& input, const RoutingDigest* routing) {
  std::string html;
  if (!input.train.empty()) {
    const std::size_t last = std::min<std::size_t>(20, input.train.size());
    html += tile(last == 1 ? std::string("Training loss") : fmt::format("Training loss, last {} values", last),
                 real_text(mean_of_last(input.train, last), ".4f"));
  }
  if (!input.valid.empty()) html += tile("Validation loss", real_text(input.valid.back().value, ".4f"));
  if (input.unigram_entropy) {
    html += tile("Unigram entropy", real_text(*input.unigram_entropy, ".4f"));
    if (!input.valid.empty()) {
      const double lower = *input.unigram_entropy - input.valid.back().value;
      html += tile(fmt::format("Validation loss {} unigram entropy by", lower < 0 ? "above" : "below"),
                   real_text(std::abs(lower), ".3f"));
    }
  }
  if (routing) {
    double sum = 0;
    std::int64_t choices = 0, dropped = 0;
    const std::vector<RoutedTokens> loads = loads_by_layer(routing->selected, {0, 1});
    for (const RoutedTokens& load : loads) {
      sum += load.max_violation();
      choices += load.total();
      dropped += load.dropped;
    }
    if (has_step_balance(routing->selected, {0, 1})) {
      html += tile("MaxVio of a step, mean of the layers",
                   real_text(mean_of_layers(*routing, &StepBalance::max_vio_mean), ".2f"));
      html += tile("Idle experts in a step, mean of the layers", idle_in_a_step(*routing));
    }
    html += tile("MaxVio of the sum, mean of the layers", real_text(sum / static_cast<double>(loads.size()), ".2f"));
    html += tile("Starved experts, all layers", starved_now(*routing));
    if (has_dropped_counts(routing->selected) && choices > 0) {
      html += tile("Dropped choices",
                   real_text(100 * static_cast<double>(dropped) / static_cast<double>(choices), ".2f") + " %");
    }
  }
  return html.empty() ? "" : fmt::format("<div class=\"tiles\">\n{}</div>\n", html);
}

}  // namespace lyceum
