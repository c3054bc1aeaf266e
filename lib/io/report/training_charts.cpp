#include "io/report/training_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/report/chart.h"

namespace lyceum {

namespace {

/// Returns the centred moving mean of the finite values over one fortieth of the points.
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
    result.push_back({points[i].step, finite ? sum / static_cast<double>(finite) : no_value});
  }
  return result;
}

}  // namespace

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
  const std::string mtp =
      line_chart({.title = "Loss of multi-token prediction",
                  .note = "Mean of the modules' cross-entropies times mtp.weight, nats per token",
                  .x_name = "step",
                  .lines = {{.name = "multi-token prediction", .style = "train", .points = input.mtp}}});
  return line_chart(chart) + mtp;
}

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

std::string rank_imbalance_chart(const ReportInput& input) {
  return line_chart({.title = "Imbalance of expert ranks",
                     .note = "FLOPs of the busiest rank over the mean, of single steps",
                     .x_name = "step",
                     .lines = {{.name = "mean of the layers", .style = "mean", .points = input.rank_imbalance},
                               {.name = "worst layer", .style = "worst", .points = input.rank_imbalance_max},
                               {.name = "mean of the layers without replicas",
                                .style = "raw mean",
                                .points = input.rank_imbalance_without_replicas}}});
}

}  // namespace lyceum
