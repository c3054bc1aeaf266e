#include "io/report/layer_norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "io/report/chart.h"

namespace lyceum {

namespace {

constexpr const char *weights = "layer_weight_norm", *gradients = "layer_grad_norm",
                     *activations = "layer_activation_norm", *logits = "layer_attention_logit";
constexpr std::size_t most_lines = 8;  // number of colours

/// Returns the points of a layer; null if there are none.
const std::vector<MetricPoint>* find(const Metrics& metrics, const char* kind, const std::string& layer) {
  const auto found = metrics.find(fmt::format("{}/{}", kind, layer));
  return found == metrics.end() || found->second.empty() ? nullptr : &found->second;
}

std::size_t count_blocks(const Metrics& metrics) {
  std::size_t blocks = 0;
  while (find(metrics, activations, std::to_string(blocks))) ++blocks;
  return blocks;
}

/// Returns a chart with a line for each block, or for eight of them from the first to the last.
std::string chart_of(const Metrics& metrics, std::size_t blocks, const char* kind, const std::string& title,
                     const std::string& note, bool log = true) {
  LineChart chart{.title = title, .note = note + (log ? "; logarithmic" : ""), .x_name = "step", .log = log};
  const std::size_t lines = std::min(blocks, most_lines);
  for (std::size_t line = 0; line < lines; ++line) {
    const std::size_t block = lines > 1 ? line * (blocks - 1) / (lines - 1) : 0;
    const std::size_t colour = lines > 1 ? line * (most_lines - 1) / (lines - 1) : 0;
    const std::vector<MetricPoint>* points = find(metrics, kind, std::to_string(block));
    if (!points) continue;
    chart.lines.push_back({.name = fmt::format("block {}", block),
                           .style = fmt::format("k{}", colour),
                           .points = *points,
                           .dots = points->size() <= 60});
  }
  return line_chart(chart);
}

std::string table_of_last(const Metrics& metrics, std::size_t blocks) {
  std::vector<std::string> layers{"embedding"};
  for (std::size_t block = 0; block < blocks; ++block) layers.push_back(std::to_string(block));
  layers.push_back("head");
  std::string rows;
  std::int64_t step = 0;
  for (const std::string& layer : layers) {
    rows += fmt::format("<tr><th>{}</th>", layer);
    for (const char* kind : {weights, gradients, activations, logits}) {
      const std::vector<MetricPoint>* points = find(metrics, kind, layer);
      if (points) step = std::max(step, points->back().step);
      rows += fmt::format("<td>{}</td>", points ? short_number(points->back().value) : "");
    }
    rows += "</tr>\n";
  }
  return fmt::format(
      "<section class=\"table\">\n<h2>Norms by layer</h2>\n<p>At step {}</p>\n<div class=\"scroll\"><table>\n"
      "<thead><tr><th>layer</th><th>weights</th><th>gradient</th><th>activations</th><th>attention "
      "logit</th></tr></thead>\n<tbody>\n"
      "{}</tbody>\n</table></div>\n</section>\n",
      grouped_number(step), rows);
}

}  // namespace

std::string layer_norms(const ReportInput& input) {
  const Metrics& metrics = input.layers;
  const std::size_t blocks = count_blocks(metrics);
  if (blocks == 0) return "";
  LineChart of_head{
      .title = "Largest logit", .note = "Of the head, over all words and tokens of a step", .x_name = "step"};
  if (const auto found = metrics.find("largest_logit"); found != metrics.end()) {
    of_head.lines.push_back({.name = "largest logit", .style = "worst", .points = found->second});
  }
  const std::string of_attention =
      find(metrics, logits, "0") ? chart_of(metrics, blocks, logits, "Largest attention logits of blocks",
                                            "Scaled, before the softmax, over all heads and tokens of a step", false)
                                 : "";
  return fmt::format("<div class=\"pair\">\n{}{}</div>\n<div class=\"pair\">\n{}{}</div>\n{}{}",
                     chart_of(metrics, blocks, gradients, "Gradient norms of blocks", "Before clipping"),
                     chart_of(metrics, blocks, weights, "Weight norms of blocks", "Of trained weights"),
                     chart_of(metrics, blocks, activations, "Activation norms of blocks",
                              "Norm of a token's vector after the block, root mean square over tokens"),
                     line_chart(of_head), of_attention, table_of_last(metrics, blocks));
}

}  // namespace lyceum
