#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Reads metrics.jsonl line by line, in memory that does not grow with the file, fast enough for millions of lines.
namespace lyceum {

/// Calls use(line, offset of its end in bytes, number of the line from 1) for each complete line, until it returns
/// false. Stops at
/// - a last line without a newline: the run is writing it, or was killed while it did;
/// - a zero byte: after a power failure, file systems may leave zeros where data had not reached the disk.
/// Throws a bad_input Error if the file cannot be read.
void for_each_line(const std::filesystem::path& file,
                   const std::function<bool(const std::string&, std::int64_t, std::int64_t)>& use);

/// Throws the bad_input Error of a line that is not an object with an integer "step".
[[noreturn]] void fail_damaged_line(const std::filesystem::path& file, std::int64_t number);

/// The lines of a metrics file that count. A step can occur several times, if a run was resumed by a program that does
/// not remove repeated lines, or if files were joined. Then the later line counts, and so do the steps after it: all
/// earlier lines of that step and of later ones are superseded.
struct MetricsExtent {
  /// A line whose step is not above that of the line before.
  struct Restart {
    std::int64_t line = 0, step = 0;
  };
  std::int64_t lines = 0;                        // complete lines
  std::int64_t first_step = -1, last_step = -1;  // of the lines that count; -1: none does
  std::optional<double> tokens = {};             // tokens at the last step, if its line has them
  std::vector<Restart> restarts = {};            // in the order of the file
};

/// Finds which lines of a file count. Reads only the step of most lines. Throws as for_each_line() does, and if a line
/// has no integer step.
MetricsExtent measure_metrics(const std::filesystem::path& file);

/// One value for each key: nothing if the line does not have the key, NaN if the number was not finite.
using MetricValues = std::span<const std::optional<double>>;

/// Calls use(step, values) for each line that counts, by ascending step. `extent`: of the same file; lines that were
/// appended since then are not read. `keys`: the wanted keys; values are in their order. Throws as for_each_line()
/// does, and a bad_input Error that names the first damaged line.
void for_each_step(const std::filesystem::path& file, const MetricsExtent& extent,
                   std::span<const std::string_view> keys, const std::function<void(std::int64_t, MetricValues)>& use);

}  // namespace lyceum
