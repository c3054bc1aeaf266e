#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lyceum {

/// One start of a run, with what is needed to repeat it.
struct RunStart {
  std::int64_t step = 0;     // number of steps done before
  std::string date = {};     // UTC, ISO 8601
  std::string program = {};  // version and commit of Lyceum
  std::string mesh = {};
  std::string config = {};  // resolved, in INI syntax
};

/// Appends a start to `file`, starts.jsonl of a run's directory, one JSON object per line. Removes starts after
/// `start.step`, since their steps are done again; a start at step 0 replaces the file. Throws as MetricsLog does.
void record_start(const std::filesystem::path& file, const RunStart& start);

/// Reads all starts, oldest first; skips an incomplete last line. Throws a bad_input Error that names file and line.
std::vector<RunStart> read_starts(const std::filesystem::path& file);

/// Returns the current time: "2026-03-01T12:00:00Z".
std::string utc_date();

}  // namespace lyceum
