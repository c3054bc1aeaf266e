#include "io/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>

#include "core/real_text.h"
#include "io/report/alarms.h"
#include "io/report/chart.h"
#include "io/report/layers.h"
#include "io/report/page.h"
#include "io/text/table.h"

namespace lyceum {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Steps that training left out.
std::vector<Alarm> training_alarms(const std::vector<MetricPoint>& skipped) {
  const auto first = std::ranges::find_if(skipped, [](const MetricPoint& point) { return point.value > 0; });
  if (first == skipped.end()) return {};
  return {{.step = first->step,
           .over = skipped.size() > 1 && skipped.back().value == skipped[skipped.size() - 2].value,
           .text = fmt::format("{} skipped, since loss or gradient was not finite",
                               count_text(std::llround(skipped.back().value), "step"))}};
}

std::vector<Alarm> all_alarms(const ReportInput& input) {
  std::vector<Alarm> alarms = training_alarms(input.skipped);
  for (Alarm& alarm : routing_alarms(input.routing)) alarms.push_back(std::move(alarm));
  return alarms;
}

/// Mean of the finite values among the last `count` points.
double mean_of_last(const std::vector<MetricPoint>& points, std::size_t count) {
  double sum = 0;
  std::int64_t finite = 0;
  for (std::size_t i = points.size() - std::min(points.size(), count); i < points.size(); ++i) {
    if (!std::isfinite(points[i].value)) continue;
    sum += points[i].value;
    ++finite;
  }
  return finite ? sum / static_cast<double>(finite) : nan;
}

/// Centred moving mean over a fortieth of the points, of the finite ones.
std::vector<MetricPoint> smoothed(const std::vector<MetricPoint>& points) {
  const std::size_t reach = std::max<std::size_t>(1, points.size() / 80);
  std::vector<MetricPoint> result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    double sum = 0;
    std::int64_t finite = 0;
    for (std::size_t j = i - std::min(i, reach); j < std::min(points.size(), i + reach + 1); ++j) {
      if (!std::isfinite(points[j].value)) continue;
      sum += points[j].value;
      ++finite;
    }
    result.push_back({points[i].step, finite ? sum / static_cast<double>(finite) : nan});
  }
  return result;
}

/// "steps 900 to 1,200", or "step 900": where the selected records lie.
std::string range_text(const RoutingHistory& routing, RecordRange range) {
  const std::int64_t first = routing.steps[range.begin], last = routing.steps[range.end - 1];
  return first == last ? fmt::format("step {}", grouped_number(first))
                       : fmt::format("steps {} to {}", grouped_number(first), grouped_number(last));
}

std::string tile(std::string_view name, const std::string& value) {
  return fmt::format("<div class=\"tile\"><span>{}</span><strong>{}</strong></div>\n", name, value);
}

/// The mean over layers of a number of the steps in a range; NaN if no layer knows it.
double mean_of_layers(const RoutingHistory& routing, RecordRange range, float StepBalance::*number) {
  double sum = 0;
  std::int64_t layers = 0;
  for (const RoutingHistory::Layer& layer : routing.layers) {
    const auto value = double{step_balance(layer, range).*number};
    if (std::isnan(value)) continue;
    sum += value;
    ++layers;
  }
  return layers ? sum / static_cast<double>(layers) : nan;
}

/// "3.2 of 64": on average over layers and steps; "2.5 of 8 to 64" if layers differ.
std::string idle_in_a_step(const RoutingHistory& routing, RecordRange range) {
  const auto choosable = [](const RoutingHistory::Layer& layer) { return layer.experts - layer.always_on; };
  const auto [least, most] = std::ranges::minmax(routing.layers | std::views::transform(choosable));
  const std::string all = least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
  return fmt::format("{} of {}", real_text(mean_of_layers(routing, range, &StepBalance::idle_mean), ".1f"), all);
}

/// "35 of 1,536": in the newest record, of all layers.
std::string starved_now(const RoutingHistory& routing) {
  std::int64_t idle = 0, all = 0;
  for (const RoutingHistory::Layer& layer : routing.layers) {
    all += layer.experts;
    idle += std::ranges::count(starved_spans(layer), routing.steps.size(), &StarvedSpan::end);
  }
  return fmt::format("{} of {}", grouped_number(idle), grouped_number(all));
}

std::string tiles(const ReportInput& input, std::optional<RecordRange> range) {
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
  if (range) {
    double sum = 0;
    std::int64_t choices = 0, dropped = 0;
    const std::vector<RoutedTokens> loads = loads_by_layer(input.routing, *range);
    for (const RoutedTokens& load : loads) {
      sum += load.max_violation();
      choices += load.total();
      dropped += load.dropped;
    }
    if (tells_steps(input.routing, *range)) {
      html += tile("MaxVio of a step, mean of the layers",
                   real_text(mean_of_layers(input.routing, *range, &StepBalance::max_vio_mean), ".2f"));
      html += tile("Idle experts in a step, mean of the layers", idle_in_a_step(input.routing, *range));
    }
    html += tile("MaxVio of the sum, mean of the layers", real_text(sum / static_cast<double>(loads.size()), ".2f"));
    html += tile("Starved experts, all layers", starved_now(input.routing));
    if (tells_dropped(input.routing) && choices > 0) {
      html += tile("Dropped choices",
                   real_text(100 * static_cast<double>(dropped) / static_cast<double>(choices), ".2f") + " %");
    }
  }
  return html.empty() ? "" : fmt::format("<div class=\"tiles\">\n{}</div>\n", html);
}

std::string facts(const ReportInput& input) {
  std::string html = fact_list(input.facts);
  for (const std::string& sentence : input.missing)
    html += fmt::format("<p class=\"missing\">{}</p>\n", escape_xml(sentence));
  if (input.config.empty()) return html;
  return html + fmt::format("<details class=\"config\"><summary>Configuration</summary>\n<pre>{}</pre>\n</details>\n",
                            escape_xml(input.config));
}

std::string loss_chart(const ReportInput& input) {
  LineChart chart{.title = "Loss",
                  .note = "Cross-entropy, nats per token",
                  .x_name = "step",
                  .level = input.unigram_entropy,
                  .level_name = "unigram entropy:"};
  const bool noisy = input.train.size() > 80;
  chart.lines.push_back({.name = "training", .style = noisy ? "raw train" : "train", .points = input.train});
  if (noisy)
    chart.lines.push_back({.name = "training, moving mean", .style = "train", .points = smoothed(input.train)});
  chart.lines.push_back(
      {.name = "validation", .style = "valid", .points = input.valid, .dots = input.valid.size() <= 60});
  const auto bad =
      std::count_if(input.train.begin(), input.train.end(), [](const auto& p) { return !std::isfinite(p.value); });
  if (bad > 0) chart.note += fmt::format("; {} of {} training values are not finite", bad, input.train.size());
  return line_chart(chart);
}

/// Learning rate and gradient norm.
std::string optimizer_charts(const ReportInput& input) {
  const std::string lr = line_chart({.title = "Learning rate",
                                     .note = "Per step",
                                     .x_name = "step",
                                     .lines = {{.name = "lr", .style = "mean", .points = input.lr}}});
  const std::string norm =
      line_chart({.title = "Gradient norm",
                  .note = "Before clipping",
                  .x_name = "step",
                  .lines = {{.name = "gradient norm", .style = "worst", .points = input.grad_norm}}});
  return lr.empty() && norm.empty() ? "" : fmt::format("<div class=\"pair\">\n{}{}</div>\n", lr, norm);
}

std::string place_text(const RoutingHistory::Layer& layer, std::size_t expert) {
  if (layer.expert_rank[expert] < 0) return "no weights";
  return fmt::format("width {}, rank {}", layer.expert_sizes[expert], layer.expert_rank[expert]);
}

std::string load_map(const RoutingHistory& routing, RecordRange range) {
  HeatMap map{
      .title = "Load of each expert",
      .note = "Share of the layer's routed tokens, relative to an even spread (1); " + range_text(routing, range),
      .row_name = "layer",
      .column_name = "expert"};
  const std::vector<RoutedTokens> loads = loads_by_layer(routing, range);
  for (std::size_t l = 0; l < loads.size(); ++l) {
    const RoutedTokens& load = loads[l];
    const RoutingHistory::Layer& layer = routing.layers[l];
    map.rows.push_back(label_of(load.id));
    map.columns = std::max(map.columns, load.tokens.size());
    auto& values = map.values.emplace_back();
    auto& titles = map.titles.emplace_back();
    for (std::size_t e = 0; e < load.tokens.size(); ++e) {
      values.push_back(load.total() ? static_cast<double>(load.tokens[e]) / load.mean() : nan);
      titles.push_back(fmt::format("layer {}, expert {}: {} × even, {} tokens; {}", label_of(load.id), e,
                                   real_text(values.back(), ".3f"), grouped_number(load.tokens[e]),
                                   place_text(layer, e)));
    }
  }
  return heat_map(map);
}

std::string ratio_chart(const RoutingHistory& routing, RecordRange range) {
  LineChart chart{.title = "Max ÷ min tokens of an expert",
                  .note = "By layer, for each choice of a token: top0 is its first choice; " +
                          range_text(routing, range) + "; logarithmic, ∞ when an expert got no tokens",
                  .x_name = "layer",
                  .log = true};
  for (const Site site : {Site::ffn, Site::attention}) {
    std::int64_t choices = 0;
    for (const RoutingHistory::Layer& layer : routing.layers) {
      if (layer.id.site == site) choices = std::max(choices, layer.top_k);
    }
    const std::size_t first = chart.lines.size();
    for (std::int64_t k = 0; k < choices; ++k) {
      const std::int64_t colour = choices > 1 ? k * 7 / (choices - 1) : 0;  // eight colours from the first to the last
      chart.lines.push_back({.name = fmt::format("{}top{}", site == Site::attention ? "attention " : "", k),
                             .style = fmt::format("k{}", colour),
                             .dots = true});
    }
    for (const RoutedTokens& load : loads_by_choice(routing, range)) {
      if (load.id.site != site) continue;
      chart.lines[first + static_cast<std::size_t>(*load.choice)].points.push_back(
          {load.id.layer, load.max_over_min()});
    }
  }
  return line_chart(chart);
}

/// MaxVio and entropy over training: the mean of the layers and the worst of them.
std::string evenness_over_training(const RoutingHistory& routing) {
  LineChart violation{
      .title = "MaxVio of each record's sum",
      .note = "The same for all steps of a record together: busy experts that change from step to step do not show",
      .x_name = "step",
      .lines = {{.name = "mean of the layers", .style = "mean"}, {.name = "worst layer", .style = "worst"}},
      .level = 0,
      .level_name = "even:"};
  LineChart entropy = violation;
  entropy.title = "Entropy of each record's sum";
  entropy.note = "Entropy of the experts' shares, relative to an even load";
  entropy.level = 1;
  for (std::size_t r = 0; r < routing.steps.size(); ++r) {
    double violations = 0, entropies = 0, most = nan, least = nan;
    std::int64_t layers = 0;
    for (const RoutedTokens& load : loads_by_layer(routing, {r, r + 1})) {
      if (load.total() == 0) continue;
      ++layers;
      violations += load.max_violation();
      entropies += load.entropy();
      most = std::fmax(most, load.max_violation());
      least = std::fmin(least, load.entropy());
    }
    const auto mean = [&](double sum) { return layers ? sum / static_cast<double>(layers) : nan; };
    violation.lines[0].points.push_back({routing.steps[r], mean(violations)});
    violation.lines[1].points.push_back({routing.steps[r], most});
    entropy.lines[0].points.push_back({routing.steps[r], mean(entropies)});
    entropy.lines[1].points.push_back({routing.steps[r], least});
  }
  return line_chart(violation) + line_chart(entropy);
}

/// MaxVio and idle experts of single steps over training, if the log has them.
std::string steps_over_training(const RoutingHistory& routing) {
  if (!tells_steps(routing, {0, routing.steps.size()})) return "";
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
    double violations = 0, shares = 0, most_violation = nan, most_idle = nan;
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
    const auto mean = [&](double sum) { return layers ? sum / static_cast<double>(layers) : nan; };
    violation.lines[0].points.push_back({routing.steps[r], mean(violations)});
    violation.lines[1].points.push_back({routing.steps[r], most_violation});
    idle.lines[0].points.push_back({routing.steps[r], mean(shares)});
    idle.lines[1].points.push_back({routing.steps[r], most_idle});
  }
  return fmt::format("<div class=\"pair\">\n{}{}</div>\n", line_chart(violation), line_chart(idle));
}

/// If the capacity of experts is limited: the share of choices beyond it.
std::string dropped_over_training(const RoutingHistory& routing) {
  if (!tells_dropped(routing)) return "";
  LineChart chart{.title = "Dropped choices over training",
                  .note = "Share of a layer's choices that exceeded the capacity of their expert",
                  .x_name = "step",
                  .lines = {{.name = "mean of the layers", .style = "mean"}, {.name = "worst layer", .style = "worst"}},
                  .level = 0,
                  .level_name = "none:"};
  for (std::size_t r = 0; r < routing.steps.size(); ++r) {
    double sum = 0, most = nan;
    std::int64_t layers = 0;
    for (const RoutedTokens& load : loads_by_layer(routing, {r, r + 1})) {
      if (load.total() == 0) continue;
      ++layers;
      sum += load.dropped_share();
      most = std::fmax(most, load.dropped_share());
    }
    chart.lines[0].points.push_back({routing.steps[r], layers ? sum / static_cast<double>(layers) : nan});
    chart.lines[1].points.push_back({routing.steps[r], most});
  }
  return line_chart(chart);
}

std::string load_table(const RoutingHistory& routing, RecordRange range) {
  const bool dropped = tells_dropped(routing);
  std::string rows;
  for (const RoutedTokens& load : loads_by_choice(routing, range)) {
    rows += fmt::format(
        "<tr{}><th>layer{} top{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{}</tr>\n",
        *load.choice == 0 ? " class=\"first\"" : "", label_of(load.id), *load.choice, grouped_number(load.max()),
        grouped_number(load.min()),
        std::isfinite(load.max_over_min()) ? real_text(load.max_over_min(), ".3f") : short_number(load.max_over_min()),
        grouped_number(std::llround(load.mean())), real_text(load.variation(), ".3f"), load.busiest(),
        dropped ? fmt::format("<td>{}</td>", grouped_number(load.dropped)) : "");
  }
  return fmt::format(
      "<section class=\"table\">\n<h2>Tokens per expert</h2>\n"
      "<p>Summed over {}; CV is the standard deviation over the mean</p>\n<div class=\"scroll\"><table>\n"
      "<thead><tr><th>layer, choice</th><th>max</th><th>min</th><th>max/min</th><th>mean</th><th>CV</th>"
      "<th>busiest expert</th>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n</section>\n",
      range_text(routing, range), dropped ? "<th>dropped</th>" : "", rows);
}

}  // namespace

std::string html_report(const ReportInput& input) {
  std::optional<RecordRange> range;
  if (!input.routing.steps.empty() && !input.routing.layers.empty()) {
    range = input.range ? *input.range : select_records(input.routing);
  }
  const std::vector<Alarm> alarms = all_alarms(input);
  std::string body = fmt::format("<h1>{}</h1>\n", escape_xml(input.title));
  if (range || !alarms.empty()) body += alarm_list(alarms);
  if (range) body += starved_overview(input.routing);
  body += tiles(input, range) + facts(input) + loss_chart(input) + optimizer_charts(input);
  if (range) {
    body += steps_over_training(input.routing);
    body += fmt::format("<div class=\"pair\">\n{}</div>\n", evenness_over_training(input.routing));
    body += dropped_over_training(input.routing);
    body += layer_cards(input.routing, alarms) + load_map(input.routing, *range) + ratio_chart(input.routing, *range) +
            load_table(input.routing, *range);
  } else {
    body += fmt::format("<p class=\"missing\">{}</p>\n", escape_xml(input.no_routing));
  }
  return html_page(input.title, body);
}

}  // namespace lyceum
