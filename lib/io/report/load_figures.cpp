#include "io/report/load_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/real_text.h"
#include "io/report/chart.h"
#include "io/report/heat_map.h"
#include "io/routing/stats.h"
#include "io/text/table.h"

namespace lyceum {

namespace {

/// Returns the steps of the selected records: "steps 900 to 1,200" or "step 900".
std::string range_text(const RoutingDigest& routing) {
  const std::int64_t first = routing.steps[routing.range.begin], last = routing.steps[routing.range.end - 1];
  return first == last ? fmt::format("step {}", grouped_number(first))
                       : fmt::format("steps {} to {}", grouped_number(first), grouped_number(last));
}

std::string placement_text(const RoutingHistory::Layer& layer, std::size_t expert) {
  if (layer.expert_rank[expert] < 0) return "no weights";
  return fmt::format("width {}, rank {}", layer.expert_sizes[expert], layer.expert_rank[expert]);
}

}  // namespace

std::string load_map(const RoutingDigest& routing) {
  HeatMap map{.title = "Load of each expert",
              .note = "Share of the layer's routed tokens, relative to an even spread (1); " + range_text(routing),
              .row_name = "layer",
              .column_name = "expert"};
  const std::vector<RoutedTokens> loads = loads_by_layer(routing.selected, {0, 1});
  for (std::size_t l = 0; l < loads.size(); ++l) {
    const RoutedTokens& load = loads[l];
    const RoutingHistory::Layer& layer = routing.selected.layers[l];
    map.rows.push_back(label_of(load.id));
    map.columns = std::max(map.columns, load.tokens.size());
    auto& values = map.values.emplace_back();
    auto& titles = map.titles.emplace_back();
    for (std::size_t e = 0; e < load.tokens.size(); ++e) {
      values.push_back(load.total() ? static_cast<double>(load.tokens[e]) / load.mean() : no_value);
      titles.push_back(fmt::format("layer {}, expert {}: {} × even, {} tokens; {}", label_of(load.id), e,
                                   real_text(values.back(), ".3f"), grouped_number(load.tokens[e]),
                                   placement_text(layer, e)));
    }
  }
  return heat_map(map);
}

std::string ratio_chart(const RoutingDigest& routing) {
  LineChart chart{.title = "Max ÷ min tokens of an expert",
                  .note = "By layer, for each choice of a token: top0 is its first choice; " + range_text(routing) +
                          "; logarithmic, ∞ when an expert got no tokens",
                  .x_name = "layer",
                  .log = true};
  for (const Site site : {Site::ffn, Site::attention}) {
    std::int64_t choices = 0;
    for (const RoutingHistory::Layer& layer : routing.selected.layers) {
      if (layer.id.site == site) choices = std::max(choices, layer.top_k);
    }
    const std::size_t first = chart.lines.size();
    for (std::int64_t k = 0; k < choices; ++k) {
      const std::int64_t colour = choices > 1 ? k * 7 / (choices - 1) : 0;  // eight colours from the first to the last
      chart.lines.push_back({.name = fmt::format("{}top{}", site == Site::attention ? "attention " : "", k),
                             .style = fmt::format("k{}", colour),
                             .dots = true});
    }
    for (const RoutedTokens& load : loads_by_choice(routing.selected, {0, 1})) {
      if (load.id.site != site) continue;
      chart.lines[first + static_cast<std::size_t>(*load.choice)].points.push_back(
          {load.id.layer, load.max_over_min()});
    }
  }
  return line_chart(chart);
}

std::string load_table(const RoutingDigest& routing) {
  const bool dropped = has_dropped_counts(routing.selected);
  std::string rows;
  for (const RoutedTokens& load : loads_by_choice(routing.selected, {0, 1})) {
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
      range_text(routing), dropped ? "<th>dropped</th>" : "", rows);
}

}  // namespace lyceum
