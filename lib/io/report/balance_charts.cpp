#include "io/report/balance_charts.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/report/chart.h"
#include "io/routing/stats.h"

namespace lyceum {

std::string evenness_over_training(const RoutingDigest& routing) {
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
    const RecordBalance& balance = routing.balance[r];
    violation.lines[0].points.push_back({routing.steps[r], balance.violation.mean()});
    violation.lines[1].points.push_back({routing.steps[r], balance.violation.worst});
    entropy.lines[0].points.push_back({routing.steps[r], balance.entropy.mean()});
    entropy.lines[1].points.push_back({routing.steps[r], balance.entropy.worst});
  }
  return line_chart(violation) + line_chart(entropy);
}

std::string steps_over_training(const RoutingDigest& routing) {
  const auto has_steps = [](const RecordBalance& balance) { return balance.step_violation.layers > 0; };
  if (std::ranges::none_of(routing.balance, has_steps)) return "";
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
    const RecordBalance& balance = routing.balance[r];
    violation.lines[0].points.push_back({routing.steps[r], balance.step_violation.mean()});
    violation.lines[1].points.push_back({routing.steps[r], balance.step_violation.worst});
    idle.lines[0].points.push_back({routing.steps[r], balance.step_idle.mean()});
    idle.lines[1].points.push_back({routing.steps[r], balance.step_idle.worst});
  }
  return fmt::format("<div class=\"pair\">\n{}{}</div>\n", line_chart(violation), line_chart(idle));
}

std::string dropped_over_training(const RoutingDigest& routing) {
  if (!has_dropped_counts(routing.selected)) return "";
  LineChart chart{.title = "Dropped choices over training",
                  .note = "Share of a layer's choices that exceeded the capacity of their expert",
                  .x_name = "step",
                  .lines = {{.name = "mean of the layers", .style = "mean"}, {.name = "worst layer", .style = "worst"}},
                  .level = 0,
                  .level_name = "none:"};
  for (std::size_t r = 0; r < routing.steps.size(); ++r) {
    chart.lines[0].points.push_back({routing.steps[r], routing.balance[r].dropped.mean()});
    chart.lines[1].points.push_back({routing.steps[r], routing.balance[r].dropped.worst});
  }
  return line_chart(chart);
}

}  // namespace lyceum
