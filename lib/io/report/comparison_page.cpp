#include "io/report/comparison_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "io/report/chart.h"
#include "io/report/page.h"
#include "io/text/table.h"

namespace lyceum {
namespace {

constexpr std::size_t run_colours = 8, run_dashes = 3;  // of the style sheet, io/report/page.cpp

/// A horizontal axis. Charts have whole numbers there, so positions are scaled to a unit of which runs have thousands.
struct RunAxis {
  std::string name;
  double CurvePoint::*position = nullptr;  // null: the step
  double scale = 1;                        // units per token or second

  double at(const CurvePoint& point) const {
    return position ? scale * (point.*position) : static_cast<double>(point.step);
  }
};

/// Returns the largest finite position of any curve.
double largest(const Comparison& comparison, double CurvePoint::*position) {
  double most = 0;
  for (const ComparedRun& run : comparison.runs) {
    for (const auto& [kind, curve] : run.summary.curves) {
      for (const CurvePoint& point : curve.means()) {
        if (std::isfinite(point.*position)) most = std::max(most, point.*position);
      }
    }
  }
  return most;
}

RunAxis token_axis(const Comparison& comparison) {
  const double most = largest(comparison, &CurvePoint::tokens);
  if (most < 1e6) return {.name = "tokens", .position = &CurvePoint::tokens, .scale = 1};
  if (most < 1e9) return {.name = "thousand tokens", .position = &CurvePoint::tokens, .scale = 1e-3};
  return {.name = "million tokens", .position = &CurvePoint::tokens, .scale = 1e-6};
}

RunAxis time_axis(const Comparison& comparison) {
  const double most = largest(comparison, &CurvePoint::seconds);
  if (most < 100) return {.name = "milliseconds", .position = &CurvePoint::seconds, .scale = 1e3};
  if (most < 6000) return {.name = "seconds", .position = &CurvePoint::seconds, .scale = 1};
  return {.name = "minutes", .position = &CurvePoint::seconds, .scale = 1.0 / 60};
}

std::vector<MetricPoint> on_axis(const std::vector<CurvePoint>& points, const RunAxis& axis) {
  std::vector<MetricPoint> result;
  for (const CurvePoint& point : points) {
    const double position = axis.at(point);
    if (std::isfinite(position) && std::abs(position) < 9e18) result.push_back({std::llround(position), point.value});
  }
  return result;
}

/// Returns the limit of a vertical axis: six times the median of all points, so that a run that diverges does not
/// flatten the others. Nothing if no point is above it.
std::optional<double> axis_limit(const std::vector<ChartLine>& lines) {
  std::vector<double> values;
  for (const ChartLine& line : lines) {
    for (const MetricPoint& point : line.points) {
      if (std::isfinite(point.value)) values.push_back(point.value);
    }
  }
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  const double limit = 6 * *middle;
  return limit > 0 && std::ranges::max(values) > limit ? std::optional(limit) : std::nullopt;
}

/// Returns the chart of a metric with one line per run; empty if no run has it. If values were thinned out, the line is
/// the mean of a bucket, and a pale line shows the extremes.
std::string run_chart(const Comparison& comparison, CurveKind kind, const RunAxis& axis, LineChart chart) {
  std::vector<ChartLine> pale, lines;
  bool means = false;
  for (std::size_t r = 0; r < comparison.runs.size(); ++r) {
    const ComparedRun& run = comparison.runs[r];
    const auto curve = run.summary.curves.find(kind);
    if (curve == run.summary.curves.end()) continue;
    const std::string style = fmt::format("r{} dash{}", r % run_colours, r / run_colours % run_dashes);
    const std::vector<MetricPoint> all = on_axis(curve->second.points(), axis);
    if (curve->second.thinned()) {
      means = true;
      pale.push_back({.name = "", .style = "raw " + style, .points = all});
      lines.push_back({.name = run.name, .style = style, .points = on_axis(curve->second.means(), axis)});
    } else {
      lines.push_back({.name = run.name, .style = style, .points = all, .dots = all.size() <= 30});
    }
  }
  chart.top = axis_limit(lines);
  if (means)
    chart.note += fmt::format("; lines are means of 1/{} of a run, pale lines its extremes", RunCurve::most_buckets);
  if (chart.top) chart.note += fmt::format("; values above {} are at the upper edge", short_number(*chart.top));
  chart.x_name = axis.name;
  chart.lines = std::move(pale);
  chart.lines.insert(chart.lines.end(), lines.begin(), lines.end());
  return line_chart(chart);
}

std::string beside(const std::string& left, const std::string& right) {
  if (left.empty() && right.empty()) return "";
  return fmt::format("<div class=\"pair\">\n{}{}</div>\n", left, right);
}

std::string html_table(const Comparison& comparison, const std::vector<ComparisonRow>& rows, const std::string& title,
                       const std::string& note) {
  std::string head, body;
  for (const ComparedRun& run : comparison.runs) {
    head += fmt::format("<th title=\"{}\">{}</th>", escape_xml(run.file), escape_xml(run.name));
  }
  for (const ComparisonRow& row : rows) {
    body += fmt::format("<tr{}><th>{}</th>", row.first ? " class=\"first\"" : "", escape_xml(row.name));
    for (const std::string& cell : row.cells) body += fmt::format("<td>{}</td>", escape_xml(cell));
    body += "</tr>\n";
  }
  return fmt::format(
      "<div class=\"table\"><h2>{}</h2><p>{}</p><div class=\"scroll\"><table>\n<thead><tr><th></th>{}</tr></thead>\n"
      "<tbody>\n{}</tbody></table></div></div>\n",
      escape_xml(title), escape_xml(note), head, body);
}

std::string charts(const Comparison& comparison) {
  const RunAxis steps{.name = "step"}, tokens = token_axis(comparison), time = time_axis(comparison);
  const auto chart = [&](CurveKind kind, const RunAxis& axis, const char* title, const char* note) {
    return run_chart(comparison, kind, axis, {.title = title, .note = note, .x_name = {}});
  };
  const char* nats = "Cross-entropy, nats per token";
  std::string html = chart(CurveKind::loss, steps, "Training loss by step", nats);
  html += beside(chart(CurveKind::loss, tokens, "Training loss by tokens", nats),
                 chart(CurveKind::loss, time, "Training loss by time",
                       "Cross-entropy, nats per token; the time of steps without validation, saves and pauses"));
  html += beside(chart(CurveKind::valid_loss, steps, "Validation loss by step", nats),
                 chart(CurveKind::valid_loss, tokens, "Validation loss by tokens", nats));
  html += beside(chart(CurveKind::grad_norm, steps, "Gradient norm", "Before clipping"),
                 chart(CurveKind::tokens_per_second, steps, "Tokens per second", "Of all ranks together"));
  html += beside(chart(CurveKind::max_violation, steps, "MaxVio", "Of the worst layer in each step; 0 is an even load"),
                 chart(CurveKind::idle_experts, steps, "Idle experts", "In each step, all layers"));
  return html;
}

}  // namespace

std::string comparison_page(const Comparison& comparison, const std::string& title) {
  std::string body = fmt::format("<h1>{}</h1>\n", escape_xml(title)) + charts(comparison);
  body += html_table(comparison, result_rows(comparison), "Results",
                     "Losses at a step or a number of tokens are means over the last 5 % before it.");
  const std::vector<ComparisonRow> settings = setting_rows(comparison);
  if (!settings.empty()) {
    body += html_table(comparison, settings, "Configuration", "The keys that differ. A run's last start counts.");
  }
  for (const ComparedRun& run : comparison.runs) {
    if (run.configured) continue;
    body += fmt::format(
        "<p class=\"missing\">{}</p>\n",
        escape_xml(fmt::format("{}: no starts.jsonl beside {}: its configuration is unknown.", run.name, run.file)));
  }
  return html_page(title, body);
}

}  // namespace lyceum
