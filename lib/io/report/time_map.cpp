#include "io/report/time_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

#include "io/report/chart.h"
#include "io/report/heat_map.h"
#include "io/report/palette_png.h"

namespace lyceum {
namespace {

constexpr std::size_t most_columns = 256, least_columns = 24;
constexpr std::size_t most_cells = 6'000'000;  // per page; they take 4 MB as base64
constexpr int even_bin = heat_bins / 2;
constexpr std::uint8_t no_tokens_cell = heat_bins, empty_cell = heat_bins + 1;

/// Returns the colours of heat maps, of "no tokens" and of an empty cell. On a dark page, CSS inverts the lightness of
/// the image.
std::vector<Rgb8> map_palette() {
  const std::array<Rgb8, heat_bins> heat = heat_palette();
  std::vector<Rgb8> palette(heat.begin(), heat.end());
  palette.push_back({.red = 18, .green = 18, .blue = 22});
  palette.push_back({.red = 255, .green = 255, .blue = 255});
  return palette;
}

std::string map_image(std::size_t width, std::size_t height, const std::vector<std::uint8_t>& cells,
                      std::string_view title) {
  return fmt::format("<img alt=\"{}\" src=\"{}\"/>", escape_xml(title),
                     png_data_uri(palette_png(width, height, cells, map_palette())));
}

/// Returns a strip of cells with the words `marks` below it. `names` has the meaning of each cell, shown under the
/// pointer, separated by "|".
std::string legend_strip(const std::vector<std::uint8_t>& cells, std::initializer_list<std::string_view> marks,
                         std::string_view names) {
  std::string words;
  for (const std::string_view mark : marks) words += fmt::format("<span>{}</span>", escape_xml(mark));
  return fmt::format(
      "<div class=\"scale\"><div class=\"strip\" data-cells=\"{}\" style=\"width:{}px\">{}</div><div "
      "class=\"marks\">{}</div></div>",
      escape_xml(names), 15 * cells.size() + (cells.size() == 1 ? 9 : 0), map_image(cells.size(), 1, cells, ""), words);
}

std::vector<std::uint8_t> cells_between(std::uint8_t first, std::uint8_t last) {
  std::vector<std::uint8_t> cells;
  for (std::uint8_t cell = first; cell <= last; ++cell) cells.push_back(cell);
  return cells;
}

std::string axis_labels(const TimeMap& map) {
  std::string labels;
  const auto rows = static_cast<double>(map.rows.size()), columns = static_cast<double>(map.steps.size());
  const std::size_t stride = label_stride(map.rows.size(), static_cast<std::size_t>(std::max(2, map.height / 15)));
  for (std::size_t r = 0; r < map.rows.size(); r += stride) {
    labels += fmt::format("<b class=\"y\" style=\"bottom:{:.2f}%\">{}</b>",
                          100 * (rows - static_cast<double>(r) - 0.5) / rows, escape_xml(map.rows[r]));
  }
  const auto low = static_cast<double>(map.steps.front()), high = static_cast<double>(map.steps.back());
  std::vector<double> ticks = axis_ticks(low, high, 4, false);
  std::erase_if(ticks, [](double tick) { return tick != std::floor(tick); });
  if (ticks.empty()) ticks = {high};
  for (const double tick : ticks) {
    const auto column = std::ranges::lower_bound(map.steps, static_cast<std::int64_t>(tick)) - map.steps.begin();
    labels +=
        fmt::format("<b class=\"x\" style=\"left:{:.2f}%\">{}</b>", 100 * (static_cast<double>(column) + 0.5) / columns,
                    grouped_number(static_cast<std::int64_t>(tick)));
  }
  return labels + fmt::format("<b class=\"row-name\">{}</b>", escape_xml(map.row_name));
}

}  // namespace

std::vector<RecordRange> time_columns(const RoutingReader& log) {
  std::int64_t rows = 0;
  for (const RoutingHistory::Layer& layer : log.routers()) rows += layer.experts * (1 + layer.top_k);
  const std::size_t affordable = most_cells / static_cast<std::size_t>(std::max<std::int64_t>(1, rows));
  const std::size_t records = log.steps().size();
  const std::size_t count = std::min(records, std::clamp(affordable, least_columns, most_columns));
  std::vector<RecordRange> columns;
  for (std::size_t c = 0; c < count; ++c) columns.push_back({c * records / count, (c + 1) * records / count});
  return columns;
}

std::string time_map(const TimeMap& map) {
  std::string rows;
  for (const std::string& row : map.rows) rows += (rows.empty() ? "" : ",") + row;
  return fmt::format("<div class=\"plot map\" style=\"height:{}px\" data-row=\"{}\" data-rows=\"{}\">{}{}</div>\n",
                     map.height, escape_xml(map.row_name), escape_xml(rows),
                     map_image(map.steps.size(), map.rows.size(), map.cells, map.title), axis_labels(map));
}

std::uint8_t load_cell(double load) {
  if (std::isnan(load)) return empty_cell;
  return load == 0 ? no_tokens_cell : static_cast<std::uint8_t>(heat_bin(load));
}

std::uint8_t share_cell(double share) {
  const int darker = std::clamp(static_cast<int>(std::ceil(share * even_bin)), 0, even_bin);
  return static_cast<std::uint8_t>(even_bin + darker);
}

std::string load_cell_legend() {
  std::string names;
  for (int bin = 0; bin < static_cast<int>(heat_bins); ++bin) {
    names += fmt::format("{}about {:.2g} × even", bin ? "|" : "", std::exp2((bin - even_bin) * 2.0 / even_bin));
  }
  return fmt::format("<div class=\"legend\">{}{}</div>\n",
                     legend_strip(cells_between(0, heat_bins - 1), {"≤ ¼", "½", "1", "2", "≥ 4"}, names),
                     legend_strip({no_tokens_cell}, {"no tokens"}, "no tokens"));
}

std::string share_cell_legend(std::string_view what) {
  return fmt::format("<div class=\"legend\">{}<span>{}</span></div>\n",
                     legend_strip(cells_between(share_cell(0), share_cell(1)), {"none", "all"}, ""), escape_xml(what));
}

}  // namespace lyceum
