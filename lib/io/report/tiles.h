#pragma once

#include <string>

#include "io/report/digest.h"
#include "io/report/html.h"

namespace lyceum {

/// Returns the HTML of the numbers at the top of a report; empty if there are none. Numbers about routing are computed
/// over the selected records (starved experts: for the newest record), and are omitted if `routing` is null.
std::string number_tiles(const ReportInput& input, const RoutingDigest* routing);

}  // namespace lyceum
