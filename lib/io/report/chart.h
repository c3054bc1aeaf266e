#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/run/metrics.h"

namespace lyceum {

/// Text for an HTML page that is also XML: & < > " ' as entities, characters that act instead of being shown as
/// printable_lines() writes them.
std::string escape_xml(std::string_view text);
/// A few significant digits: 3.142, 12,345, "inf" as ∞, NaN as NaN.
std::string short_number(double value);
/// 1,234,567
std::string grouped_number(std::int64_t value);

/// Round values for an axis that shows [low, high], about `count` of them; 1-2-5 steps a decade when `log`.
std::vector<double> axis_ticks(double low, double high, int count, bool log);

/// A value that is not known.
constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

struct ChartLine {
  std::string name;                      // in the legend and under the pointer; empty: in neither
  std::string style;                     // CSS class that gives colour and stroke
  std::vector<MetricPoint> points = {};  // by step; NaN leaves a gap, infinity is on the upper edge
  bool dots = false;
};

/// A figure: lines over a whole-number axis (steps, layers). Marks are SVG that stretches with the page; words are HTML
/// of a fixed size, so the chart reads the same in a wide and a narrow window.
struct LineChart {
  std::string title, note, x_name;
  std::vector<ChartLine> lines = {};
  std::optional<double> level = {};  // a horizontal line …
  std::string level_name = {};       // … and its label
  bool log = false;                  // logarithmic y axis
};
/// Empty when no line has a point.
std::string line_chart(const LineChart& chart);

/// 1, 2, 5, 10, 20 …: every how many of `count` labels are shown along an axis with room for `room`.
std::size_t label_stride(std::size_t count, std::size_t room);

}  // namespace lyceum
