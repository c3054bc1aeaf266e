#pragma once

#include "io/routing/history.h"
#include "io/routing/stats.h"

namespace lyceum {

// Figures of the number of tokens of each expert, summed over the records in a range.

/// Returns a heat map of layers and experts, relative to an even load.
std::string load_map(const RoutingHistory& routing, RecordRange range);
/// Returns a chart of the ratio of the most to the fewest tokens of an expert, by layer and choice.
std::string ratio_chart(const RoutingHistory& routing, RecordRange range);
/// Returns a table with one row per layer and choice: max, min, max/min, mean, coefficient of variation, busiest expert
/// and, if capacity is limited, dropped choices.
std::string load_table(const RoutingHistory& routing, RecordRange range);

}  // namespace lyceum
