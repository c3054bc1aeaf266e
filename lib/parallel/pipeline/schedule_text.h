#pragma once

#include <span>

#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// Returns e.g. "F0" or "SF0"; with virtual stages the stage comes first: "2F0".
std::string text(const Action& action, const PipelineShape& shape);
/// Returns e.g. "F0 F1 B0 B1".
std::string text(std::span<const Action> program, const PipelineShape& shape);
/// Returns one line per rank, e.g. "rank 0: F0 F1 B0 B1".
std::string text(const Schedule& schedule);
/// Returns the programs of neighbouring ranks around one action, which is in brackets; one line per rank. For error
/// messages.
std::string excerpt(const Schedule& schedule, int rank, std::size_t index);

}  // namespace lyceum
