#include "io/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/real_text.h"
#include "io/report/alarms.h"
#include "io/report/balance_charts.h"
#include "io/report/chart.h"
#include "io/report/digest.h"
#include "io/report/layers.h"
#include "io/report/load_figures.h"
#include "io/report/page.h"
#include "io/report/tiles.h"
#include "io/report/training_charts.h"
#include "io/text/table.h"

namespace lyceum {

namespace {

/// Returns an alarm if training skipped steps, else nothing. `skipped` has the number of steps skipped so far.
std::vector<Alarm> training_alarms(const std::vector<MetricPoint>& skipped) {
  const auto first = std::ranges::find_if(skipped, [](const MetricPoint& point) { return point.value > 0; });
  if (first == skipped.end()) return {};
  return {{.step = first->step,
           .over = skipped.size() > 1 && skipped.back().value == skipped[skipped.size() - 2].value,
           .text = fmt::format("{} skipped, since loss or gradient was not finite",
                               count_text(std::llround(skipped.back().value), "step"))}};
}

std::string facts(const ReportInput& input) {
  std::string html = fact_list(input.facts);
  for (const std::string& sentence : input.missing)
    html += fmt::format("<p class=\"missing\">{}</p>\n", escape_xml(sentence));
  if (input.config.empty()) return html;
  return html + fmt::format("<details class=\"config\"><summary>Configuration</summary>\n<pre>{}</pre>\n</details>\n",
                            escape_xml(input.config));
}

}  // namespace

std::string html_report(const ReportInput& input) {
  std::optional<RoutingDigest> routing;
  if (!input.routing.steps().empty() && !input.routing.routers().empty()) {
    routing = digest_of(input.routing, input.range ? *input.range : select_records(input.routing));
  }
  std::vector<Alarm> alarms = training_alarms(input.skipped);
  if (routing) alarms.insert(alarms.end(), routing->alarms.begin(), routing->alarms.end());
  std::string body = fmt::format("<h1>{}</h1>\n", escape_xml(input.title));
  if (routing || !alarms.empty()) body += alarm_list(alarms);
  if (routing) body += starved_overview(*routing);
  body +=
      number_tiles(input, routing ? &*routing : nullptr) + facts(input) + loss_chart(input) + optimizer_charts(input);
  if (routing) {
    body += steps_over_training(*routing);
    body += fmt::format("<div class=\"pair\">\n{}</div>\n", evenness_over_training(*routing));
    body += dropped_over_training(*routing);
    body += layer_cards(*routing, alarms) + load_map(*routing) + ratio_chart(*routing) + load_table(*routing);
  } else {
    body += fmt::format("<p class=\"missing\">{}</p>\n", escape_xml(input.no_routing));
  }
  return html_page(input.title, body);
}

}  // namespace lyceum
