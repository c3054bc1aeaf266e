#pragma once

#include "io/report/html.h"
#include "io/routing/stats.h"

namespace lyceum {

/// The numbers at the top of a report; those of routing are of the records in `range`. Empty if there are none.
std::string number_tiles(const ReportInput& input, std::optional<RecordRange> range);

}  // namespace lyceum
