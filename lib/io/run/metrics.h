#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/files/appended_file.h"

namespace lyceum {

/// A run's `metrics.jsonl`: one JSON object a line, numbers in full precision. JSON has no NaN: non-finite numbers
/// are written as null and their keys listed under "nonfinite". One rank owns it.
class MetricsLog {
 public:
  /// Opens or creates. Lines of steps after `resume_step` are cut off (a resumed run writes them again), and so is a
  /// last line that a killed run tore, or that a power failure left as zeros; -1 begins an empty file. Throws a
  /// bad_input Error for a damaged line.
  MetricsLog(const std::filesystem::path& file, std::int64_t resume_step);

  /// Appends one line and hands it to the system; `record` has an integer "step". When the disk is full it throws and
  /// leaves no part of a line behind; the line waits and is written by the next append or sync that finds space.
  void append(const nlohmann::ordered_json& record);

  /// Returns when all lines are on the disk. Throws a failed Error when they do not get there.
  void sync() { lines_->sync(); }

  /// What was found when it was opened: the step of the last line that stays (-1: none), and lines that were cut off.
  std::int64_t resumed_at() const { return resumed_at_; }
  std::int64_t lines_cut() const { return lines_cut_; }

 private:
  std::optional<AppendedFile> lines_;
  std::int64_t resumed_at_ = -1, lines_cut_ = 0;
};

struct MetricPoint {
  std::int64_t step = 0;
  double value = 0;
  bool operator==(const MetricPoint&) const = default;
};

/// The numbers of a metrics file by key, each in the order of the file; NaN for a non-finite number.
using Metrics = std::map<std::string, std::vector<MetricPoint>>;

/// Numbers at the top level of each line; an incomplete last line is skipped. Throws a bad_input Error that names file
/// and line.
Metrics read_metrics(const std::filesystem::path& file);

}  // namespace lyceum
