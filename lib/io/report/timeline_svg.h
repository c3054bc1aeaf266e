#pragma once

#include <string>

#include "parallel/pipeline/timeline.h"

namespace lyceum {

/// A drawing of a pipeline step: a row for each rank of the pipeline, a box an action, coloured by kind, time from left
/// to right; sends and receives, which take no time of a rank, are omitted. A self-contained file that reads well on a
/// light and on a dark page. `title` is above it; below it a line says the makespan, with `time_unit` behind it
/// ("ms", or empty), and the bubble. With virtual stages the boxes of a row's later stages are paler.
std::string timeline_svg(const Timeline& timeline, const std::string& title, const std::string& time_unit = "");

}  // namespace lyceum
