#include "io/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "io/report/chart.h"

namespace lyceum {
namespace {

// Number of colours on either side of the middle one. Three of them are a factor of two, all six a factor of four.
constexpr int side = heat_bins / 2;

using Rgb = std::array<double, 3>;

Rgb mixed(const Rgb& a, const Rgb& b, double share) {
  Rgb result{};
  for (std::size_t i = 0; i < 3; ++i) result[i] = a[i] + share * (b[i] - a[i]);
  return result;
}

/// Interpolates between the three colours of a ramp, which are those of the shares 0, ½ and 1.
Rgb on_ramp(const std::array<Rgb, 3>& ramp, double share) {
  return share < 0.5 ? mixed(ramp[0], ramp[1], 2 * share) : mixed(ramp[1], ramp[2], 2 * share - 1);
}

/// Returns the colour of a bin in [-side, side], for a dark or a light page.
Rgb bin_colour(int bin, bool dark) {
  const std::array<Rgb, 3> low = dark ? std::array<Rgb, 3>{{{52, 54, 60}, {47, 98, 158}, {110, 190, 255}}}
                                      : std::array<Rgb, 3>{{{240, 239, 236}, {146, 190, 226}, {28, 92, 164}}};
  const std::array<Rgb, 3> high = dark ? std::array<Rgb, 3>{{{52, 54, 60}, {170, 84, 40}, {255, 176, 92}}}
                                       : std::array<Rgb, 3>{{{240, 239, 236}, {244, 168, 118}, {178, 42, 26}}};
  return on_ramp(bin < 0 ? low : high, std::abs(bin) / double{side});
}

/// Returns the height of a row in pixels.
int row_height(std::size_t rows) {
  if (rows > 40) return 11;
  if (rows > 20) return 15;
  if (rows > 8) return 20;
  return 28;
}

std::string cell_class(double value) {
  if (value == 0) return "none";
  return fmt::format("h{}", heat_bin(value));
}

}  // namespace

std::size_t heat_bin(double value) {
  return static_cast<std::size_t>(side +
                                  std::clamp(std::lround(side / 2.0 * std::log2(value)), long{-side}, long{side}));
}

std::array<Rgb8, heat_bins> heat_palette() {
  std::array<Rgb8, heat_bins> palette;
  for (int bin = -side; bin <= side; ++bin) {
    const Rgb colour = bin_colour(bin, false);
    const auto part = [&](std::size_t i) { return static_cast<std::uint8_t>(std::lround(colour[i])); };
    palette[static_cast<std::size_t>(bin + side)] = {part(0), part(1), part(2)};
  }
  return palette;
}

std::size_t label_stride(std::size_t count, std::size_t room) {
  for (std::size_t decade = 1;; decade *= 10) {
    for (const std::size_t stride : {decade, 2 * decade, 5 * decade}) {
      if ((count + stride - 1) / stride <= room) return stride;
    }
  }
}

std::string heat_colours(bool dark) {
  std::string css;
  for (int bin = -side; bin <= side; ++bin) {
    const Rgb colour = bin_colour(bin, dark);
    css += fmt::format("--h{}:rgb({:.0f},{:.0f},{:.0f});", bin + side, colour[0], colour[1], colour[2]);
  }
  return css;
}

std::string heat_legend() {
  std::string cells, marks;
  for (int bin = 0; bin <= 2 * side; ++bin) cells += fmt::format("<i class=\"h{}\"></i>", bin);
  for (const char* mark : {"≤ ¼", "½", "1", "2", "≥ 4"}) marks += fmt::format("<span>{}</span>", mark);
  return fmt::format(
      "<div class=\"legend\"><div class=\"scale\"><div class=\"cells\">{}</div><div class=\"marks\">{}</div></div>"
      "<div class=\"scale\"><div class=\"cells\"><i class=\"none\"></i></div>"
      "<div class=\"marks\"><span>no tokens</span></div></div>\n</div>",
      cells, marks);
}

std::string heat_map(const HeatMap& map) {
  const double gap = map.columns > 80 ? 0 : 0.05;
  std::string cells, labels;
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    for (std::size_t c = 0; c < map.values[r].size(); ++c) {
      if (std::isnan(map.values[r][c])) continue;
      cells += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>\n",
                           cell_class(map.values[r][c]), static_cast<double>(c) + gap / 2,
                           static_cast<double>(r) + gap / 2, 1 - gap, 1 - gap, escape_xml(map.titles[r][c]));
    }
  }
  const auto rows = static_cast<double>(map.rows.size()), columns = static_cast<double>(map.columns);
  const std::size_t row_stride = label_stride(map.rows.size(), 32);
  for (std::size_t r = 0; r < map.rows.size(); r += row_stride) {
    labels += fmt::format("<b class=\"y\" style=\"bottom:{:.2f}%\">{}</b>",
                          100 * (rows - static_cast<double>(r) - 0.5) / rows, escape_xml(map.rows[r]));
  }
  const std::size_t column_stride = label_stride(map.columns, 20);
  for (std::size_t c = 0, n = 0; c < map.columns; c += column_stride, ++n) {
    labels += fmt::format("<b class=\"x{}\" style=\"left:{:.2f}%\">{}</b>", n % 2 ? " odd" : "",
                          100 * (static_cast<double>(c) + 0.5) / columns, c);
  }
  labels += fmt::format("<b class=\"x name\">{}</b><b class=\"row-name\">{}</b>\n", escape_xml(map.column_name),
                        escape_xml(map.row_name));
  std::size_t longest = 0;  // length of the longest row name; five characters fit into the default margin
  for (const std::string& row : map.rows) longest = std::max(longest, row.size());
  const std::string margin = longest > 5 ? fmt::format(";margin-left:{}px", 12 + 7 * longest) : "";
  return fmt::format(
      "<figure>\n<figcaption><h2>{}</h2><p>{}</p>{}</figcaption>\n"
      "<div class=\"plot heat\" style=\"height:{}px;max-width:{}px{}\">\n{}"
      "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n"
      "</div>\n</figure>\n",
      escape_xml(map.title), escape_xml(map.note), map.legend ? heat_legend() : "",
      row_height(map.rows.size()) * static_cast<int>(map.rows.size()), 84 * map.columns, margin, labels, map.columns,
      map.rows.size(), escape_xml(map.title), cells);
}

}  // namespace lyceum
