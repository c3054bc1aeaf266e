#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lyceum {

/// One start of a run: what a reader needs to do it again.
struct RunStart {
  std::int64_t step = 0;     // steps done before
  std::string date = {};     // UTC, ISO 8601
  std::string program = {};  // version and commit
  std::string mesh = {};
  std::string config = {};  // resolved, INI
};

/// `starts.jsonl` of a run directory: a JSON object a start. Starts after `start.step`, whose steps are done again, are
/// cut off. Throws as MetricsLog does.
void record_start(const std::filesystem::path& file, const RunStart& start);

/// Oldest first. Throws a bad_input Error that names file and line.
std::vector<RunStart> read_starts(const std::filesystem::path& file);

/// Now: "2026-03-01T12:00:00Z".
std::string utc_date();

}  // namespace lyceum
