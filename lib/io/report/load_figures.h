#pragma once

#include <string>

#include "io/report/digest.h"

namespace lyceum {

// Figures of the number of tokens of each expert, summed over the selected records.

/// Returns a heat map of layers and experts, relative to an even load.
std::string load_map(const RoutingDigest& routing);
/// Returns a chart of the ratio of the most to the fewest tokens of an expert, by layer and choice.
std::string ratio_chart(const RoutingDigest& routing);
/// Returns a table with one row per layer and choice: max, min, max/min, mean, coefficient of variation, busiest expert
/// and, if capacity is limited, dropped choices.
std::string load_table(const RoutingDigest& routing);

}  // namespace lyceum
