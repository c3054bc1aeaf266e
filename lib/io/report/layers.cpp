#include "io/report/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "core/real_text.h"
#include "io/report/chart.h"
#include "io/report/time_map.h"
#include "io/routing/stats.h"
#include "io/text/table.h"

namespace lyceum {
namespace {

constexpr std::size_t most_starved_lines = 20;  // in the card of a layer

std::vector<std::string> numbered(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

/// Returns the HTML id of a layer's card.
std::string anchor_of(const MixtureId& id) {
  return fmt::format("layer-{}{}", id.layer, id.site == Site::attention ? "-attention" : "");
}

/// Returns the load of one layer in each column of a map. `choice`: counts only the k-th choices of tokens.
std::vector<RoutedTokens> loads_over_time(const RoutingHistory::Layer& layer, std::optional<std::int64_t> choice) {
  std::vector<RoutedTokens> loads;
  for (std::size_t c = 0; c < layer.records(); ++c) loads.push_back(layer_load(layer, {c, c + 1}, choice));
  return loads;
}

std::string expert_map(const RoutingHistory::Layer& layer, const std::vector<std::int64_t>& steps,
                       const std::vector<RoutedTokens>& loads) {
  const auto experts = static_cast<int>(layer.experts);
  TimeMap map{.title = fmt::format("Layer {}: load of each expert over time", label_of(layer.id)),
              .row_name = "expert",
              .rows = numbered(layer.experts),
              .steps = steps,
              .height = experts <= 16 ? std::max(48, 8 * experts) : std::clamp(2 * experts, 128, 320)};
  map.cells.reserve(map.rows.size() * loads.size());
  for (std::size_t e = 0; e < map.rows.size(); ++e) {
    for (const RoutedTokens& load : loads)
      map.cells.push_back(load_cell(static_cast<double>(load.tokens[e]) / load.mean()));
  }
  return time_map(map);
}

/// Returns an HTML list of the experts that were starved and the steps between which they were; empty if there are
/// none.
std::string starved_list(const std::vector<StarvedSpan>& spans, const std::vector<std::int64_t>& steps) {
  // Experts by the records [begin, end) of their spans.
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> experts;
  for (const StarvedSpan& span : spans) experts[{span.begin, span.end}].push_back(span.expert);
  std::string items;
  std::size_t lines = 0;
  for (const auto& [span, numbers] : experts) {
    if (++lines > most_starved_lines) break;
    const bool still = span.second == steps.size();
    const std::string until = still ? "" : " until step " + grouped_number(steps[span.second - 1]);
    items += fmt::format("<li>{} {} starved: no token since {}{}</li>\n", numbers.size() == 1 ? "expert" : "experts",
                         ranges_text(numbers), starved_since(steps, span.first), until);
  }
  if (experts.size() > most_starved_lines) {
    items += fmt::format("<li>and {} more such spans; lyceum routing dump writes all counts</li>\n",
                         experts.size() - most_starved_lines);
  }
  return items.empty() ? "" : fmt::format("<ul class=\"starved\">\n{}</ul>\n", items);
}

std::string percentile_chart(const std::vector<RoutedTokens>& loads, const std::vector<std::int64_t>& steps) {
  LineChart chart{.title = "Load percentiles",
                  .note = "Experts of the layer, relative to the mean load",
                  .x_name = "step",
                  .lines = {{.name = "busiest", .style = "worst"},
                            {.name = "90 %", .style = "k6"},
                            {.name = "median", .style = "mean"},
                            {.name = "10 %", .style = "k2"},
                            {.name = "least loaded", .style = "k0"}}};
  const double shares[] = {1, 0.9, 0.5, 0.1, 0};
  for (std::size_t c = 0; c < loads.size(); ++c) {
    for (std::size_t i = 0; i < chart.lines.size(); ++i) {
      chart.lines[i].points.push_back({steps[c], loads[c].percentile(shares[i])});
    }
  }
  return line_chart(chart);
}

std::string evenness_charts(const RoutingHistory::Layer& layer, const std::vector<RoutedTokens>& loads,
                            const std::vector<std::int64_t>& steps) {
  LineChart entropy{.title = "Entropy of the load",
                    .note = "Relative to an even load: 1 is even",
                    .x_name = "step",
                    .lines = {{.name = "entropy", .style = "mean"}}};
  LineChart violation{.title = "MaxVio",
                      .note = "Load of the busiest expert over the mean, minus 1: 0 is even",
                      .x_name = "step",
                      .lines = {{.name = "of the sum", .style = "k2"}}};
  LineChart idle{.title = "Idle experts in a step",
                 .note = fmt::format("Of {}, those that no token of a step chose", layer.choosable()),
                 .x_name = "step",
                 .lines = {{.name = "mean of the steps", .style = "mean"}, {.name = "worst step", .style = "worst"}}};
  const bool of_steps =
      std::ranges::any_of(layer.steps, [](const StepBalance& balance) { return !std::isnan(balance.max_vio_mean); });
  if (of_steps) violation.lines.insert(violation.lines.end(), idle.lines.begin(), idle.lines.end());
  for (std::size_t c = 0; c < loads.size(); ++c) {
    entropy.lines[0].points.push_back({steps[c], loads[c].entropy()});
    violation.lines[0].points.push_back({steps[c], loads[c].max_violation()});
    if (!of_steps) continue;
    const StepBalance balance = step_balance(layer, c);
    violation.lines[1].points.push_back({steps[c], balance.max_vio_mean});
    violation.lines[2].points.push_back({steps[c], balance.max_vio_max});
    idle.lines[0].points.push_back({steps[c], balance.idle_mean});
    idle.lines[1].points.push_back({steps[c], balance.idle_max});
  }
  return line_chart(violation) + line_chart(idle) + line_chart(entropy);
}

std::string information_chart(const RoutingHistory::Layer& layer, const std::vector<std::int64_t>& steps) {
  if (layer.mean_entropy.empty()) return "";
  LineChart chart{
      .title = "Information of a choice about its token",
      .note = "Nats: entropy of the mean probabilities H(m), of a token's probabilities H(m|x), and their difference",
      .x_name = "step",
      .lines = {{.name = "H(m)", .style = "k0"},
                {.name = "H(m|x)", .style = "k6"},
                {.name = "mutual information", .style = "mean"}}};
  for (std::size_t c = 0; c < steps.size(); ++c) {
    const Information info = information(layer, {c, c + 1});
    chart.lines[0].points.push_back({steps[c], info.entropy});
    chart.lines[1].points.push_back({steps[c], info.of_token});
    chart.lines[2].points.push_back({steps[c], info.mutual()});
  }
  return line_chart(chart);
}

std::string choice_maps(const RoutingHistory::Layer& layer, const std::vector<std::int64_t>& steps) {
  std::string html;
  for (std::int64_t k = 0; layer.top_k > 1 && k < layer.top_k; ++k) {
    html += fmt::format("<div><h4>top{}: each token's {} choice</h4>\n{}</div>\n", k, ordinal(k + 1),
                        expert_map(layer, steps, loads_over_time(layer, k)));
  }
  return html.empty() ? "" : fmt::format("<div class=\"maps\">\n{}</div>\n", html);
}

/// Returns the HTML of router number `router`.
std::string layer_card(const RoutingDigest& routing, std::size_t router, const std::vector<Alarm>& alarms) {
  const RoutingHistory::Layer& layer = routing.over_time.layers[router];
  const std::vector<std::int64_t>& steps = routing.over_time.steps;
  const std::vector<RoutedTokens> loads = loads_over_time(layer, {});
  std::string current_alarms;
  for (const Alarm& alarm : alarms) {
    if (alarm.router == layer.id && !alarm.over) current_alarms += fmt::format("<p>{}</p>\n", escape_xml(alarm.text));
  }
  const RoutedTokens& now = loads.back();
  const StepBalance newest = step_balance(layer, steps.size() - 1);
  const std::string of_steps = std::isnan(newest.max_vio_mean) ? ""
                                                               : fmt::format("MaxVio of a step {}, at most {} · ",
                                                                             real_text(newest.max_vio_mean, ".3g"),
                                                                             real_text(newest.max_vio_max, ".3g"));
  return fmt::format(
      "<section class=\"card{}\">\n<h3 id=\"{}\">Layer {}</h3>\n{}<p class=\"numbers\">{}of the sum {} · entropy "
      "{}</p>\n{}<details>\n<summary>{}percentiles, MaxVio, idle experts, entropy</summary>\n{}{}<div "
      "class=\"trio\">\n{}{}{}</div>\n</details>\n"
      "</section>\n",
      current_alarms.empty() ? "" : " alarmed", anchor_of(layer.id), label_of(layer.id), current_alarms,
      of_steps.empty() ? "MaxVio " : of_steps, real_text(now.max_violation(), ".3g"), real_text(now.entropy(), ".3g"),
      expert_map(layer, steps, loads), layer.top_k > 1 ? "by choice, " : "",
      starved_list(routing.starved[router], routing.steps), choice_maps(layer, steps), percentile_chart(loads, steps),
      evenness_charts(layer, loads, steps), information_chart(layer, steps));
}

std::string alarm_item(const Alarm& alarm) {
  const std::string step = fmt::format("<strong>step {}</strong>", grouped_number(alarm.step));
  const std::string heading = !alarm.router ? step
                                            : fmt::format("<a href=\"#{}\">{} · layer {}</a>", anchor_of(*alarm.router),
                                                          step, label_of(*alarm.router));
  return fmt::format("<li>{}: {}</li>\n", heading, escape_xml(alarm.text));
}

}  // namespace

std::string alarm_list(const std::vector<Alarm>& alarms) {
  std::string now, over;
  std::size_t ended = 0;
  for (const Alarm& alarm : alarms) {
    (alarm.over ? over : now) += alarm_item(alarm);
    ended += alarm.over;
  }
  if (!over.empty())
    over = fmt::format("<details><summary>{}</summary><ul>\n{}</ul></details>\n",
                       count_text(static_cast<std::int64_t>(ended), "past alarm"), over);
  if (now.empty())
    return fmt::format("<section class=\"alarms calm\">\n<h2>No current alarms</h2>\n{}</section>\n", over);
  const std::size_t count = alarms.size() - ended;
  return fmt::format("<section class=\"alarms\">\n<h2>{}</h2>\n<ul>\n{}</ul>\n{}</section>\n",
                     count_text(static_cast<std::int64_t>(count), "current alarm"), now, over);
}

std::string starved_overview(const RoutingDigest& routing) {
  TimeMap map{.title = "Starved experts of each layer over time",
              .row_name = "layer",
              .steps = routing.over_time.steps,
              .height = std::clamp(14 * static_cast<int>(routing.starved.size()), 56, 400)};
  bool any = false;
  for (std::size_t i = 0; i < routing.starved.size(); ++i) {
    const RoutingHistory::Layer& layer = routing.over_time.layers[i];
    const std::vector<StarvedSpan>& spans = routing.starved[i];
    any = any || !spans.empty();
    map.rows.push_back(label_of(layer.id));
    for (const RecordRange& column : routing.columns) {
      const auto starved = std::ranges::count_if(
          spans, [&](const StarvedSpan& span) { return span.begin < column.end && span.end >= column.end; });
      map.cells.push_back(share_cell(static_cast<double>(starved) / static_cast<double>(layer.choosable())));
    }
  }
  if (!any) return "";
  return fmt::format("<figure>\n<figcaption><h2>{}</h2>{}</figcaption>\n{}</figure>\n", map.title,
                     share_cell_legend("of a layer's experts are starved"), time_map(map));
}

std::string layer_cards(const RoutingDigest& routing, const std::vector<Alarm>& alarms) {
  std::string cards, steps;
  for (std::size_t i = 0; i < routing.starved.size(); ++i) cards += layer_card(routing, i, alarms);
  for (const std::int64_t step : routing.over_time.steps) steps += fmt::format("{}{}", steps.empty() ? "" : ",", step);
  const std::string merged =
      routing.columns.size() < routing.steps.size()
          ? fmt::format("; {} records in {} columns", routing.steps.size(), routing.columns.size())
          : "";
  return fmt::format(
      "<section class=\"layers\" data-steps=\"{}\">\n<h2>Experts over time</h2>\n"
      "<p>Load of each expert relative to an even spread (1); one row per expert, one column per record{}</p>\n{}"
      "<div class=\"cards\">\n{}</div>\n</section>\n",
      steps, merged, load_cell_legend(), cards);
}

}  // namespace lyceum
