#pragma once

#include "io/routing/history.h"
#include "io/routing/stats.h"

namespace lyceum {

/// Figures of the records in a range together: how many tokens each expert got.

/// A map of layers and experts.
std::string load_map(const RoutingHistory& routing, RecordRange range);
/// Max ÷ min tokens of an expert, by layer and choice.
std::string ratio_chart(const RoutingHistory& routing, RecordRange range);
/// A row per layer and choice.
std::string load_table(const RoutingHistory& routing, RecordRange range);

}  // namespace lyceum
