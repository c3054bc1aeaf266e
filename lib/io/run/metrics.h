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

/// Writes a run's `metrics.jsonl`: one JSON object per line, numbers in full precision. Since JSON has no NaN,
/// non-finite numbers are written as null and their keys are listed under "nonfinite". Only one rank may write the
/// file.
class MetricsLog {
 public:
  /// Opens or creates the file. Removes all lines from the first step after `resume_step` on, since a resumed run
  /// writes them again, and an incomplete last line of a killed run or zeros left by a power failure. With −1 the file
  /// is emptied. Throws a bad_input Error if a line before those is damaged.
  MetricsLog(const std::filesystem::path& file, std::int64_t resume_step);

  /// Writes one line. `record` must have an integer "step". If writing fails, for example because the disk is full,
  /// throws and leaves no part of the line in the file; the next successful append() or sync() writes the line first.
  void append(const nlohmann::ordered_json& record);

  /// Fsyncs all lines. Throws a failed Error if that fails.
  void sync() { lines_->sync(); }

  /// Return the step of the last line that the constructor kept (−1 if none), and the number of lines that it removed.
  std::int64_t resumed_at() const { return resumed_at_; }
  std::int64_t lines_cut() const { return lines_cut_; }

 private:
  std::optional<AppendedFile> lines_;
  std::int64_t resumed_at_ = -1, lines_cut_ = 0;
};

/// The value of a metric at one step.
struct MetricPoint {
  std::int64_t step = 0;
  double value = 0;
  bool operator==(const MetricPoint&) const = default;
};

/// The numbers of a metrics file by key, each by ascending step. NaN if a number was not finite.
using Metrics = std::map<std::string, std::vector<MetricPoint>>;

/// Reads the numbers at the top level of each line that counts, see MetricsExtent, and skips an incomplete last line.
/// Throws a bad_input Error that names file and line.
Metrics read_metrics(const std::filesystem::path& file);

}  // namespace lyceum
