#pragma once

#include "io/report/html.h"
#include "io/routing/stats.h"

namespace lyceum {

/// Returns the HTML of the numbers at the top of a report; empty if there are none. Numbers about routing are computed
/// over the records in `range` (starved experts: for the newest record), and are omitted without a range.
std::string number_tiles(const ReportInput& input, std::optional<RecordRange> range);

}  // namespace lyceum
