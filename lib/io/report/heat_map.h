#pragma once

#include <cstddef>

#include "io/report/palette_png.h"

namespace lyceum {

/// A figure: one cell a (row, column), coloured by value / 1 on a logarithmic scale from ¼ to 4; zero has its own
/// colour, NaN leaves the cell empty.
struct HeatMap {
  std::string title, note, row_name, column_name;
  std::vector<std::string> rows = {};
  std::size_t columns = 0;
  std::vector<std::vector<double>> values = {};       // [rows][up to columns]
  std::vector<std::vector<std::string>> titles = {};  // shown when the pointer rests on a cell
  bool legend = true;
};
std::string heat_map(const HeatMap& map);
/// The meaning of the colours, shown once for several maps.
std::string heat_legend();

/// Colours of a heat map, from ¼ to 4 on a light page, and the one of a value.
constexpr std::size_t heat_bins = 13;
std::array<Rgb8, heat_bins> heat_palette();
std::size_t heat_bin(double value);

/// CSS custom properties of the heat map's colours: for a light page, or a dark one.
std::string heat_colours(bool dark);

}  // namespace lyceum
