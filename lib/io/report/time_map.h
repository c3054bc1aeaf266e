#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/routing/history.h"
#include "io/routing/stats.h"

namespace lyceum {

/// Records put together so that all maps of a page stay within a few megabytes: at most 256 columns, and fewer where
/// layers, experts and choices are very many.
std::vector<RecordRange> time_columns(const RoutingHistory& history);

/// A drawing with a row each of some things (experts, layers) and a column each of some records.
struct TimeMap {
  std::string title;  // what an empty page would say
  std::string row_name;
  std::vector<std::string> rows = {};
  /// The labels of the columns: the last step of each.
  std::vector<std::int64_t> steps = {};
  std::vector<std::uint8_t> cells = {};  // [rows, steps]: see the functions below
  int height = 0;                        // pixels
};
/// An image with axes around it: without a frame, heading or legend.
std::string time_map(const TimeMap& map);

/// Cells: the load over that of an even spread (0: no tokens; NaN: nobody had tokens), or a share between 0 and 1.
std::uint8_t load_cell(double load);
std::uint8_t share_cell(double share);
std::string load_cell_legend();
std::string share_cell_legend(std::string_view what);

}  // namespace lyceum
