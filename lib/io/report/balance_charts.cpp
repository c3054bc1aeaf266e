#include "io/report/balance_charts.h"

#include <fmt/format.h>

#include <cmath>

#include "io/report/chart.h"
#include "io/routing/stats.h"

namespace lyceum {

std::string evenness_over_training(const RoutingHistory& routing) {
  LineChart violation{
      .title = "MaxVio of each record's sum",
      .note =
          "MaxVio of the load summed over the steps of a record, which hides busy experts that change from step to "
          "step",
      .x_name = "step",
      .lines = {{.name = "mean of the layers", .style = "mean"}, {.name = "worst layer", .style = "worst"}},
      .level = 0,
      .level_name = "even:"};
  LineChart entropy = violation;
  entropy.title = "Entropy of each record's sum";
  entropy.note = "Entropy of the experts' shares, relative to an even load";
  entropy.level = 1;
  for (std::size_t r = 0; r < routing.steps.size(); ++r) {
    double violations = 0, entropies = 0, most = no_value, least = no_value;
    std::int64_t layers = 0;
    for (const RoutedTokens& load : loads_by_layer(routing, {r, r + 1})) {
      if (load.total() == 0) continue;
      ++layers;
      violations += load.max_violation();
      entropies += load.entropy();
      most = std::fmax(most, load.max_violation());
      least = std::fmin(least, load.entropy());
    }
    const auto mean = [&](double sum) { return layers ? sum / static_cast<double>(layers) : no_value; };
    violation.lines[0].points.push_back({routing.steps[r], mean(violations)});
    violation.lines[1].points.push_back({routing.steps[r], most});
    entropy.lines[0].points.push_back({routing.steps[r], mean(entropies)});
    entropy.lines[1].points.push_back({routing.steps[r], least});
  }
  return line_chart(violation) + line_chart(entropy);
}

std::string steps_over_training(const RoutingHistory& routing) {
  if (!has_step_balance(routing, {0, routing.steps.size()})) return "";
  LineChart violation{
      .title = "MaxVio of single steps",
      .note = "MaxVio: load of the busiest expert over the mean of its layer, minus 1; each step by itself",
      .x_name = "step",
      .lines = {{.name = "mean of the steps and layers", .style = "mean"},
                {.name = "worst step of the worst layer", .style = "worst"}},
      .level = 0,
      .level_name = "even:"};
  LineChart idle{.title = "Idle experts of single steps",
                 .note = "Share of a layer's experts that no token of a step chose",
                 .x_name = "step",
                 .lines = violation.lines,
                 .level = 0,
                 .level_name = "none:"};
  for (std::size_t r = 0; r < routing.steps.size(); ++r) {
    double violations = 0, shares = 0, most_violation = no_value, most_idle = no_value;
    std::int64_t layers = 0;
    for (const RoutingHistory::Layer& layer : routing.layers) {
      const StepBalance steps = step_balance(layer, r);
      if (std::isnan(steps.max_vio_mean)) continue;
      const auto choosable = static_cast<double>(layer.experts - layer.always_on);
      ++layers;
      violations += double{steps.max_vio_mean};
      shares += double{steps.idle_mean} / choosable;
      most_violation = std::fmax(most_violation, double{steps.max_vio_max});
      most_idle = std::fmax(most_idle, double{steps.idle_max} / choosable);
    }
    const auto mean = [&](double sum) { return layers ? sum / static_cast<double>(layers) : no_value; };
    violation.lines[0].points.push_back({routing.steps[r], mean(violations)});
    violation.lines[1].points.push_back({routing.steps[r], most_violation});
    idle.lines[0].points.push_back({routing.steps[r], mean(shares)});
    idle.lines[1].points.push_back({routing.steps[r], most_idle});
  }
  return fmt::format("<div class=\"pair\">\n{}{}</div>\n", line_chart(violation), line_chart(idle));
}

std::string dropped_over_training(const RoutingHistory& routing) {
  if (!has_dropped_counts(routing)) return "";
  LineChart chart{.title = "Dropped choices over training",
                  .note = "Share of a layer's choices that exceeded the capacity of their expert",
                  .x_name = "step",
                  .lines = {{.name = "mean of the layers", .style = "mean"}, {.name = "worst layer", .style = "worst"}},
                  .level = 0,
                  .level_name = "none:"};
  for (std::size_t r = 0; r < routing.steps.size(); ++r) {
    double sum = 0, most = no_value;
    std::int64_t layers = 0;
    for (const RoutedTokens& load : loads_by_layer(routing, {r, r + 1})) {
      if (load.total() == 0) continue;
      ++layers;
      sum += load.dropped_share();
      most = std::fmax(most, load.dropped_share());
    }
    chart.lines[0].points.push_back({routing.steps[r], layers ? sum / static_cast<double>(layers) : no_value});
    chart.lines[1].points.push_back({routing.steps[r], most});
  }
  return line_chart(chart);
}

}  // namespace lyceum
