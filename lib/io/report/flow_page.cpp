#include "io/report/flow_page.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/real_text.h"
#include "io/report/chart.h"
#include "io/report/page.h"
#include "io/run/metrics.h"

namespace lyceum {
namespace {

constexpr std::size_t shown_part = 2;  // index into high_parts: the threshold of the charts with only one
constexpr double not_shown = std::numeric_limits<double>::quiet_NaN();

/// A kind of vectors, shown as one line of a chart: the inputs or the outputs of one half of the blocks.
struct FlowKind {
  Site site;
  bool output;
  const char* name;
  const char* style;
  bool holds(const ActivationFlow::Values& values) const { return values.id.site == site && values.output == output; }
};
constexpr FlowKind flow_kinds[] = {{Site::attention, true, "attention output", "train"},
                                   {Site::ffn, true, "FFN output", "valid"},
                                   {Site::attention, false, "attention input", "k3"},
                                   {Site::ffn, false, "FFN input", "k5"}};

/// Returns a chart by layer with one line per kind: number(values) of each layer, which is omitted if it is NaN.
template <class Number>
std::string by_layer(const ActivationFlow& flow, const std::string& title, const std::string& note, Number number) {
  LineChart chart{.title = title, .note = note, .x_name = "layer"};
  for (const FlowKind& kind : flow_kinds) {
    ChartLine line{.name = kind.name, .style = kind.style, .dots = true};
    for (const ActivationFlow::Values& values : flow.values) {
      if (!kind.holds(values)) continue;
      const double value = number(values);
      if (!std::isnan(value)) line.points.push_back({values.id.layer, value});
    }
    if (!line.points.empty()) chart.lines.push_back(std::move(line));
  }
  return line_chart(chart);
}

/// Returns a chart over x = first … last with one line per kind: the mean over layers of number(values, x).
template <class Number>
std::string over_layers_at(const ActivationFlow& flow, LineChart chart, std::int64_t first, std::int64_t last,
                           Number number) {
  for (const FlowKind& kind : flow_kinds) {
    ChartLine line{.name = kind.name, .style = kind.style};
    for (std::int64_t x = first; x <= last; ++x) {
      double sum = 0;
      int layers = 0;
      for (const ActivationFlow::Values& values : flow.values) {
        if (!kind.holds(values)) continue;
        sum += number(values, x);
        ++layers;
      }
      line.points.push_back({x, layers ? sum / layers : not_shown});
    }
    chart.lines.push_back(std::move(line));
  }
  return line_chart(chart);
}

/// Returns a chart of the number of consecutive tokens in which dimensions are high, with one line per threshold of
/// `high_parts`.
std::string shared_chart(const ActivationFlow& flow, const FlowKind& kind) {
  LineChart chart{.title = fmt::format("High in n of {} consecutive tokens: {}", shared_window, kind.name),
                  .note = fmt::format(
                      "Percent of the dimensions, mean of the layers; {}: shared by all tokens, 1: of only one token",
                      shared_window),
                  .x_name = "tokens"};
  for (std::size_t q = 0; q < high_parts.size(); ++q) {
    ChartLine line{
        .name = fmt::format("largest {:.0f} %", 100 * high_parts[q]), .style = fmt::format("k{}", 2 * q), .dots = true};
    for (std::int64_t n = 0; n <= shared_window; ++n) {
      double sum = 0;
      int layers = 0;
      for (const ActivationFlow::Values& values : flow.values) {
        if (!kind.holds(values)) continue;
        sum += values.shared[q * (shared_window + 1) + static_cast<std::size_t>(n)];
        ++layers;
      }
      line.points.push_back({n, 100 * sum / (layers * static_cast<double>(flow.hidden))});
    }
    chart.lines.push_back(std::move(line));
  }
  return line_chart(chart);
}

}  // namespace

std::string flow_page(const ActivationFlow& flow) {
  const std::string title = "Activation flow";
  const std::string high =
      fmt::format("High: among the largest {:.0f} % of the token's dimensions", 100 * high_parts[shown_part]);
  std::string body = fmt::format("<h1>{}</h1>\n", title) +
                     fact_list({{"Checkpoint", fmt::format("{}, step {}", flow.checkpoint, grouped_number(flow.step))},
                                {"Data", flow.data},
                                {"Tokens", grouped_number(flow.tokens)},
                                {"Loss, nats per token", real_text(flow.loss, ".4f")},
                                {"Hidden dimensions", grouped_number(flow.hidden)}});
  body += over_layers_at(flow,
                         {.title = "Magnitude held by the largest dimensions",
                          .note = "Percent of a token's sum of magnitudes, mean of tokens and layers",
                          .x_name = "percent of the dimensions"},
                         1, 100, [](const auto& values, std::int64_t x) {
                           return 100 * values.share_of_top(static_cast<double>(x) / 100);
                         });
  body += by_layer(flow, "Magnitude held by the largest half of the dimensions",
                   "Percent of a token's sum of magnitudes: more is sparser",
                   [](const auto& values) { return 100 * values.share_of_top(0.5); });
  body +=
      "<div class=\"pair\">\n" +
      by_layer(flow, "Mean magnitude", "Outputs of attention and FFN, mean of tokens and dimensions",
               [](const auto& values) { return values.output ? values.mean_magnitude() : not_shown; }) +
      by_layer(flow, "Median magnitude", "Over a token's dimensions, mean of the tokens; outputs of attention and FFN",
               [](const auto& values) { return values.output ? values.median : not_shown; }) +
      "</div>\n";
  body += over_layers_at(flow,
                         {.title = "Dimensions that are high in all of n consecutive tokens",
                          .note = "Percent of the dimensions, mean of the layers. " + high,
                          .x_name = "consecutive tokens"},
                         1, longest_window,
                         [](const auto& values, std::int64_t x) { return 100 * values.common_part(shown_part, x); });
  body +=
      by_layer(flow, "Consecutive tokens that a dimension stays high", high + "; mean over runs of consecutive tokens",
               [](const auto& values) { return values.run[shown_part]; });
  body += "<div class=\"pair\">\n" + shared_chart(flow, flow_kinds[0]) + shared_chart(flow, flow_kinds[1]) + "</div>\n";
  return html_page(title, body);
}

}  // namespace lyceum
