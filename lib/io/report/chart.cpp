#include "io/report/chart.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/printable.h"
#include "core/real_text.h"
#include "io/text/json.h"

namespace lyceum {
namespace {

constexpr std::size_t most_points = 1200;  // per line; more are not visible in a window of usual width
// Width and height of the drawing in SVG units; the page stretches it.
constexpr double extent = 1000;

struct ValueRange {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void cover(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return !(low <= high); }
};

/// Maps values to positions in the drawing: 0 is the left or lower edge, 1 the right or upper one. Infinity is mapped
/// to the upper edge.
struct Axes {
  ValueRange x, y;
  bool log = false;
  double across(double value) const { return (value - x.low) / (x.high - x.low); }
  double up(double value) const {
    if (value == std::numeric_limits<double>::infinity()) return 1;
    const double share = log ? std::log(value / y.low) / std::log(y.high / y.low) : (value - y.low) / (y.high - y.low);
    return std::clamp(share, 0.0, 1.0);
  }
};

/// Reduces the points of a line to at most `most_points`. Keeps the first, lowest, highest and last point of each
/// bucket of steps, so peaks and gaps survive.
std::vector<MetricPoint> thinned(const std::vector<MetricPoint>& points) {
  if (points.size() <= most_points) return points;
  std::vector<MetricPoint> kept;
  const std::size_t buckets = most_points / 4;
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t begin = b * points.size() / buckets, end = (b + 1) * points.size() / buckets;
    std::size_t lowest = begin, highest = begin;
    for (std::size_t i = begin; i < end; ++i) {
      if (!(points[i].value >= points[lowest].value)) lowest = i;  // true for NaN, which is kept as a gap of the line
      if (points[i].value > points[highest].value) highest = i;
    }
    std::vector<std::size_t> chosen = {begin, lowest, highest, end - 1};
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const std::size_t i : chosen) kept.push_back(points[i]);
  }
  return kept;
}

Axes axes_of(const LineChart& chart) {
  Axes axes{.x = {}, .y = {}, .log = chart.log};
  bool infinite = false;
  for (const ChartLine& line : chart.lines) {
    for (const MetricPoint& point : line.points) {
      axes.x.cover(static_cast<double>(point.step));
      if (!chart.log || point.value > 0) axes.y.cover(point.value);
      infinite = infinite || std::isinf(point.value);
    }
  }
  if (chart.level) axes.y.cover(*chart.level);
  if (axes.x.high == axes.x.low) axes.x.low -= 0.5, axes.x.high += 0.5;
  if (axes.y.empty()) axes.y = {.low = chart.log ? 1.0 : 0.0, .high = chart.log ? 10.0 : 1.0};
  if (chart.log) {
    axes.y.low = std::min(axes.y.low, 1.0);
    axes.y.high = std::max(axes.y.high * (infinite ? 2 : 1.1), 2.0);
  } else {
    const double margin =
        axes.y.high > axes.y.low ? 0.05 * (axes.y.high - axes.y.low) : std::abs(axes.y.high) / 10 + 1e-9;
    axes.y.low -= margin;
    axes.y.high += margin;
  }
  if (chart.top && *chart.top > axes.y.low) axes.y.high = std::min(axes.y.high, *chart.top);
  return axes;
}

std::string path_of(const ChartLine& line, const Axes& axes) {
  std::string path, dots;
  const bool dotted = line.dots || line.points.size() == 1;
  bool pen_down = false;
  for (const MetricPoint& point : thinned(line.points)) {
    if (std::isnan(point.value) || (axes.log && point.value <= 0)) {
      pen_down = false;
      continue;
    }
    const std::string position = fmt::format("{:.1f} {:.1f}", extent * axes.across(static_cast<double>(point.step)),
                                             extent * (1 - axes.up(point.value)));
    // "h0" makes a lone point a line of length 0, which its round ends show as a dot.
    path += fmt::format("{}{}", pen_down ? "L" : "M", position) + (pen_down ? "" : "h0");
    if (dotted) dots += fmt::format("M{}h0", position);
    pen_down = true;
  }
  std::string svg = fmt::format("<path class=\"line {}\" d=\"{}\"/>\n", line.style, path);
  if (dotted) svg += fmt::format("<path class=\"dots {}\" d=\"{}\"/>\n", line.style, dots);
  return svg;
}

/// Returns a number as JSON: NaN and infinity as strings.
std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return "\"∞\"";
  return real_text(value, ".7g");
}

/// Returns the values that the page shows under the pointer, as JSON: [{"name": …, "style": …, "points": [[step,
/// value], …]}, …].
std::string pointer_data(const LineChart& chart) {
  std::string json;
  for (const ChartLine& line : chart.lines) {
    if (line.name.empty()) continue;
    std::string points;
    for (const MetricPoint& point : thinned(line.points)) {
      points += fmt::format("{}[{},{}]", points.empty() ? "" : ",", point.step, json_number(point.value));
    }
    json += fmt::format("{}{{\"name\":{},\"style\":\"{}\",\"points\":[{}]}}", json.empty() ? "" : ",",
                        json_text(nlohmann::json(line.name)), line.style, points);
  }
  return fmt::format("[{}]", json);
}

std::string legend_of(const LineChart& chart) {
  std::string items;
  for (const ChartLine& line : chart.lines) {
    if (line.name.empty() || line.points.empty()) continue;
    items += fmt::format("<span class=\"key {}\"><i></i>{}</span>", line.style, escape_xml(line.name));
  }
  return fmt::format("<div class=\"legend\">{}</div>\n", items);
}

std::string caption_of(const std::string& title, const std::string& note, const std::string& legend) {
  return fmt::format("<figcaption><h2>{}</h2><p>{}</p>{}</figcaption>\n", escape_xml(title), escape_xml(note), legend);
}

/// The HTML of the axis labels and the SVG path of the grid behind the lines.
struct Scaffold {
  std::string labels, grid;
};
Scaffold scaffold_of(const LineChart& chart, const Axes& axes) {
  Scaffold result;
  const bool infinite = std::any_of(chart.lines.begin(), chart.lines.end(), [](const ChartLine& line) {
    return std::any_of(line.points.begin(), line.points.end(),
                       [](const MetricPoint& p) { return std::isinf(p.value); });
  });
  for (const double y : axis_ticks(axes.y.low, axes.y.high, 5, axes.log)) {
    if (infinite && axes.up(y) > 0.93) continue;  // leaves room for the label ∞
    result.labels += fmt::format("<b class=\"y\" style=\"bottom:{:.2f}%\">{}</b>", 100 * axes.up(y), short_number(y));
    result.grid += fmt::format("M0 {:.1f}H1000", extent * (1 - axes.up(y)));
  }
  std::vector<double> across = axis_ticks(axes.x.low, axes.x.high, 8, false);
  std::erase_if(across, [](double x) { return x != std::floor(x); });  // steps and layers are whole numbers
  const bool many = across.size() > 6;
  int n = 0;
  for (const double x : across) {
    result.labels += fmt::format("<b class=\"x{}\" style=\"left:{:.2f}%\">{}</b>", many && n++ % 2 ? " odd" : "",
                                 100 * axes.across(x), grouped_number(static_cast<std::int64_t>(x)));
  }
  if (infinite) result.labels += "<b class=\"y\" style=\"bottom:100%\">∞</b>";
  result.labels += fmt::format("<b class=\"x name\">{}</b>\n", escape_xml(chart.x_name));
  return result;
}

}  // namespace

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : printable_lines(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string grouped_number(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string short_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "-∞";
  if (std::abs(value) >= 1000 && std::abs(value) < 1e15) return grouped_number(std::llround(value));
  return real_text(value, ".4g");
}

namespace {

/// Returns the nearest one of 1, 2, 5 and 10 to a number between 1 and 10.
double round_digit(double number) {
  if (number < 1.5) return 1;
  if (number < 3) return 2;
  if (number < 7) return 5;
  return 10;
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count, bool log) {
  std::vector<double> ticks;
  if (!(low < high) || !std::isfinite(high - low) || (log && !(low > 0))) return ticks;
  if (log) {
    const bool decades = high / low > 1e4;
    for (double decade = std::pow(10, std::floor(std::log10(low))); decade <= high; decade *= 10) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double tick = digit * decade;
        if (tick >= low && tick <= high && (digit == 1.0 || !decades)) ticks.push_back(tick);
      }
    }
    return ticks;
  }
  const double rough = (high - low) / count, decade = std::pow(10, std::floor(std::log10(rough)));
  const double step = decade * round_digit(rough / decade);
  for (double tick = std::ceil(low / step); tick * step <= high; ++tick) ticks.push_back(tick == 0 ? 0 : tick * step);
  return ticks;
}

std::string line_chart(const LineChart& chart) {
  const bool empty =
      std::all_of(chart.lines.begin(), chart.lines.end(), [](const auto& l) { return l.points.empty(); });
  if (empty) return "";
  const Axes axes = axes_of(chart);
  const Scaffold scaffold = scaffold_of(chart, axes);
  std::string marks = fmt::format("<path class=\"grid\" d=\"{}\"/>\n", scaffold.grid);
  std::string labels = scaffold.labels;
  if (chart.level) {
    const double up = axes.up(*chart.level);
    marks += fmt::format("<path class=\"level\" d=\"M0 {:.1f}H1000\"/>\n", extent * (1 - up));
    labels += fmt::format("<b class=\"level{}\" style=\"bottom:{:.2f}%\">{} {}</b>", up > 0.9 ? " below" : "", 100 * up,
                          escape_xml(chart.level_name), short_number(*chart.level));
  }
  for (const ChartLine& line : chart.lines) marks += path_of(line, axes);
  return fmt::format(
      "<figure>\n{}<div class=\"plot\" data-low=\"{}\" data-high=\"{}\" data-name=\"{}\" data-lines=\"{}\">\n{}"
      "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n"
      "</div>\n</figure>\n",
      caption_of(chart.title, chart.note, legend_of(chart)), axes.x.low, axes.x.high, escape_xml(chart.x_name),
      escape_xml(pointer_data(chart)), labels, escape_xml(chart.title), marks);
}

}  // namespace lyceum
