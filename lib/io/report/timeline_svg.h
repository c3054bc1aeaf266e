#pragma once

#include <string>

#include "parallel/pipeline/timeline.h"

namespace lyceum {

/// Returns an SVG drawing of a pipeline step, with time from left to right. It has one row per rank of the pipeline and
/// one box per action, coloured by its kind. With virtual stages, the boxes of a rank's later stages are paler. Sends
/// and receives are omitted, since they take no time of a rank. `title` is shown above. A line below states the
/// makespan in `time_unit` (such as "ms", or empty) and the bubble. The file is self-contained and readable on light
/// and dark pages.
std::string timeline_svg(const Timeline& timeline, const std::string& title, const std::string& time_unit = "");

}  // namespace lyceum
