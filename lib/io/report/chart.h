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

/// Escapes text for an HTML page that is also valid XML: & < > " ' become entities, and control characters are written
/// as printable_lines() does.
std::string escape_xml(std::string_view text);
/// Formats a number with four significant digits, or as a whole number from 1,000 on: 3.142, 12,345, ∞, NaN.
std::string short_number(double value);
/// Formats a number with thousands separators: 1,234,567.
std::string grouped_number(std::int64_t value);

/// Returns about `count` round values for the labels of an axis that shows [low, high]. If `log`, they are 1, 2 and 5
/// times powers of ten, or only powers of ten if the range exceeds four decades.
std::vector<double> axis_ticks(double low, double high, int count, bool log);

/// An unknown value: a gap in a line, an empty cell of a map.
constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

/// One line of a chart.
struct ChartLine {
  std::string name;                      // shown in the legend and under the pointer; not listed there if empty
  std::string style;                     // CSS class that defines colour and stroke
  std::vector<MetricPoint> points = {};  // sorted by step; NaN is a gap, infinity is drawn at the upper edge
  bool dots = false;                     // marks every point
};

/// A figure with lines over an axis of whole numbers (steps or layers). Lines are SVG that stretches with the page;
/// text is HTML of a fixed size, so the chart is readable in wide and in narrow windows.
struct LineChart {
  std::string title, note, x_name;
  std::vector<ChartLine> lines = {};
  std::optional<double> level = {};  // value at which a horizontal line is drawn
  std::string level_name = {};       // label of that line
  bool log = false;                  // logarithmic y axis
  std::optional<double> top = {};    // highest value of the y axis; larger ones are drawn at the upper edge
};
/// Returns the HTML of a chart; empty if no line has a point.
std::string line_chart(const LineChart& chart);

/// Returns the smallest n of 1, 2, 5, 10, 20, … such that at most `room` of `count` labels are shown if every n-th one
/// is.
std::size_t label_stride(std::size_t count, std::size_t room);

}  // namespace lyceum
