#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/routing/history.h"
#include "io/routing/stats.h"

namespace lyceum {

/// Returns the records of each column of a page's maps. There are at most 256 columns, and fewer (at least 24) if
/// layers, experts and choices are so many that the page would exceed a few megabytes. If there are more records,
/// neighbouring ones share a column.
std::vector<RecordRange> time_columns(const RoutingReader& log);

/// An image with one row per expert or layer and one column per group of records (see time_columns()).
struct TimeMap {
  std::string title;  // alternative text of the image
  std::string row_name;
  std::vector<std::string> rows = {};
  /// The last step of each column, for its label.
  std::vector<std::int64_t> steps = {};
  std::vector<std::uint8_t> cells = {};  // [rows, steps], row-major: results of load_cell() or share_cell()
  int height = 0;                        // pixels
};
/// Returns the HTML of the image with its axes, without a frame, heading or legend. Precondition: the map has a row and
/// a column.
std::string time_map(const TimeMap& map);

/// Returns the cell for a load relative to an even spread. 0 is shown as "no tokens"; NaN (the layer had no tokens) is
/// empty.
std::uint8_t load_cell(double load);
/// Returns the cell for a share in [0, 1].
std::uint8_t share_cell(double share);
/// Return the HTML of legends for the two kinds of cells. `what` says what the share is of, for example "of a layer's
/// experts are starved".
std::string load_cell_legend();
std::string share_cell_legend(std::string_view what);

}  // namespace lyceum
