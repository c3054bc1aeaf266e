#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/run/summary.h"

namespace lyceum {

/// A run of a comparison.
struct ComparedRun {
  std::string name;  // differs from that of the other runs
  std::string file;  // its metrics.jsonl
  RunSummary summary;
  std::string program = {}, mesh = {};  // of its last start; empty if unknown
  bool configured = false;              // true if its configuration is known
};

/// Runs side by side.
struct Comparison {
  std::vector<ComparedRun> runs;
  /// The keys in which the known configurations differ, and their value in each run; empty for a run whose
  /// configuration is unknown.
  std::vector<std::pair<std::string, std::vector<std::string>>> settings = {};
};

/// A line of a table with one column per run. Missing numbers are "-".
struct ComparisonRow {
  std::string name;
  std::vector<std::string> cells;
  bool first = false;  // true if a group of rows begins
};

/// Returns the rows with the results of the runs. Rows without a value in any run are left out.
std::vector<ComparisonRow> result_rows(const Comparison& comparison);
/// Returns the rows with the differing keys.
std::vector<ComparisonRow> setting_rows(const Comparison& comparison);

/// Returns both tables for a terminal, with at most six runs beside each other.
std::string comparison_text(const Comparison& comparison);
/// Returns the same numbers in full precision as one JSON object, for programs. Missing numbers and numbers that are
/// not finite are null.
std::string comparison_json(const Comparison& comparison);

/// Returns short names for runs: the last folder of each path, preceded by as many folders above it as are needed to
/// tell them apart. `files`: the metrics files. A file whose name is not metrics.jsonl is named by its own name. Equal
/// paths get the numbers " #2", " #3", ….
std::vector<std::string> run_names(const std::vector<std::string>& files);

}  // namespace lyceum
