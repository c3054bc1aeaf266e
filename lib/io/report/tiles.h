#pragma once

#include "io/report/html.h"
#include "io/routing/stats.h"

namespace lyceum {

/// Returns the numbers at the top of a report; empty if there are none. Those of routing are computed over the records
/// in `range` and omitted without one.
std::string number_tiles(const ReportInput& input, std::optional<RecordRange> range);

}  // namespace lyceum
