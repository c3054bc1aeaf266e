#pragma once

#include <cstddef>

#include "io/report/palette_png.h"

namespace lyceum {

/// A figure with one cell per row and column. The colour of a cell shows its value on a logarithmic scale from ¼ to 4,
/// with 1 in the middle. Zero has a separate colour; NaN leaves the cell empty.
struct HeatMap {
  std::string title, note, row_name, column_name;
  std::vector<std::string> rows = {};
  std::size_t columns = 0;
  std::vector<std::vector<double>> values = {};       // [rows][up to columns]
  std::vector<std::vector<std::string>> titles = {};  // as `values`: shown when the pointer rests on the cell
  bool legend = true;
};
/// Returns the HTML of a map.
std::string heat_map(const HeatMap& map);
/// Returns the HTML of a legend of the colours, to be shown once for several maps (HeatMap::legend = false).
std::string heat_legend();

/// Number of colours of a heat map, from ¼ to 4.
constexpr std::size_t heat_bins = 13;
/// Returns the colours on a light page.
std::array<Rgb8, heat_bins> heat_palette();
/// Returns the index of the colour of a value > 0; values beyond ¼ and 4 have the colours of these.
std::size_t heat_bin(double value);

/// Returns the colours as CSS custom properties --h0, --h1, …, for a dark or a light page.
std::string heat_colours(bool dark);

}  // namespace lyceum
