#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/checkpoint/contents.h"

namespace lyceum {

/// The values of a checkpoint that a list of checkpoints shows.
struct CheckpointSummary {
  CheckpointHeader header;
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;  // elements of all tensors except optimizer state
  std::int64_t bytes = 0;       // of all files, according to the manifest
  /// The first problem that CheckpointReader::problem() finds with Check::sizes; empty if there is none.
  std::string problem;
};

/// Summarizes a checkpoint in memory that does not grow with its number of tensors. Throws as read_manifest() does.
CheckpointSummary summarize_checkpoint(const std::filesystem::path& directory);

}  // namespace lyceum
