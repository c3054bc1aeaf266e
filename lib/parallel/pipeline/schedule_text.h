#pragma once

#include <span>

#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// "F0", "SF0"; with virtual stages the stage comes first: "2F0".
std::string text(const Action& action, const PipelineShape& shape);
/// "F0 F1 B0 B1"
std::string text(std::span<const Action> program, const PipelineShape& shape);
/// One line per rank: "rank 0: F0 F1 B0 B1".
std::string text(const Schedule& schedule);
/// The programs of all ranks near one action of one rank, which is in brackets; one line per rank. For messages.
std::string excerpt(const Schedule& schedule, int rank, std::size_t index);

}  // namespace lyceum
