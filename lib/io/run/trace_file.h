#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lyceum {

/// The events of one rank in the Trace Event Format of Chrome, which Perfetto reads. A rank is a process there, and has
/// numbered tracks. Times are nanoseconds since the begin of the trace, on one clock for all ranks.
class TraceEvents {
 public:
  /// `name`: of the rank, for example "rank 3, node7".
  TraceEvents(int rank, std::string_view name);

  /// Names a track. Tracks are shown by ascending number.
  void track(int number, std::string_view name);
  /// A span of a track. Spans of one track must be nested or disjoint.
  struct Span {
    std::string_view name, category;
    int track = 0;
    std::int64_t begin = 0, end = 0;
    /// Details: a key, and a number or text.
    std::vector<std::pair<std::string_view, std::string>> texts = {};
    std::vector<std::pair<std::string_view, std::int64_t>> numbers = {};
  };
  void add(const Span& span);
  /// Adds one end of an arrow between two spans: from the one that encloses a time of `sends` = true to the one that
  /// encloses the time with the same `id` of another rank.
  void add_arrow(std::string_view id, int track, std::int64_t time, bool sends);

  /// Returns the events as lines of JSON without separators at their ends.
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  int rank_;
  std::vector<std::string> lines_;
};

/// Writes a trace of some events as a JSON object, one event per line. `facts`: names and texts for its "otherData".
/// Throws a failed Error, and leaves what it has written, if that fails.
void write_trace(const std::filesystem::path& file, const std::vector<std::pair<std::string, std::string>>& facts,
                 const TraceEvents& events);

/// Writes the events of several files that write_trace() wrote to one file, with the facts of the first one. Needs
/// memory for one line. Replaces `file` atomically. Throws a failed Error if a file cannot be read or written, and a
/// bad_input Error if one is not complete.
void join_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& file);

/// Assigns intervals to tracks such that those of a track do not overlap. `intervals`: begins and ends, sorted by
/// begin. Returns a track from 0 on for each; a track is used again as soon as its last interval has ended.
std::vector<int> disjoint_tracks(std::span<const std::pair<std::int64_t, std::int64_t>> intervals);

}  // namespace lyceum
