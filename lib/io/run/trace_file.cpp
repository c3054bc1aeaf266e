#include "io/run/trace_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/text/json.h"

namespace lyceum {
namespace {

constexpr std::string_view events_begin = "\"traceEvents\":[", events_end = "]}";

std::string json_quoted(std::string_view text) { return json_text(nlohmann::json(text)); }

/// Returns a time as microseconds, the unit of the format, with all digits of the nanoseconds.
std::string microseconds(std::int64_t nanoseconds) {
  const std::int64_t size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
  return fmt::format("{}{}.{:03}", nanoseconds < 0 ? "-" : "", size / 1000, size % 1000);
}

/// Writes the head of a file, up to the first event.
std::string trace_head(const std::vector<std::pair<std::string, std::string>>& facts) {
  nlohmann::ordered_json other = nlohmann::ordered_json::object();
  for (const auto& [name, text] : facts) other[name] = text;
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{},{}", json_text(other), events_begin);
}

/// Writes the end of a file and closes it. Throws a failed Error if it could not be written.
void finish_file(std::ofstream& out, const std::filesystem::path& file) {
  out << "\n" << events_end << "\n";
  errno = 0;
  out.close();
  require(out.good(), "{}: cannot be written: {}", file.string(), system_reason(errno));
}

/// Writes the events of all files to one.
void write_joined(std::span<const std::filesystem::path> files, const std::filesystem::path& joined) {
  std::ofstream out(joined, std::ios::binary | std::ios::trunc);
  bool first_line = true;
  for (const std::filesystem::path& part : files) {
    std::ifstream in = open_to_read(part);
    require(in.good(), "{}: cannot be opened: {}", part.string(), system_reason(errno));
    std::string head, line;
    std::getline(in, head);
    if (part == files.front()) out << head;
    bool complete = false;
    while (!complete && std::getline(in, line)) {
      complete = line == events_end;
      if (complete) break;
      if (line.ends_with(',')) line.pop_back();
      out << (std::exchange(first_line, false) ? "\n" : ",\n") << line;
    }
    require_input(complete && head.ends_with(events_begin), "{}: this trace is not complete", part.string());
  }
  finish_file(out, joined);
}

}  // namespace

TraceEvents::TraceEvents(int rank, std::string_view name) : rank_(rank) {
  lines_.push_back(
      fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", rank, json_quoted(name)));
  lines_.push_back(
      fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", rank));
}

void TraceEvents::track(int number, std::string_view name) {
  lines_.push_back(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", rank_,
                               number, json_quoted(name)));
  lines_.push_back(fmt::format(
      R"({{"ph":"M","name":"thread_sort_index","pid":{0},"tid":{1},"args":{{"sort_index":{1}}}}})", rank_, number));
}

void TraceEvents::add(const Span& span) {
  std::string details;
  const auto detail = [&](std::string_view key, const std::string& value) {
    details += fmt::format("{}{}:{}", details.empty() ? "" : ",", json_quoted(key), value);
  };
  for (const auto& [key, text] : span.texts) detail(key, json_quoted(text));
  for (const auto& [key, number] : span.numbers) detail(key, std::to_string(number));
  lines_.push_back(fmt::format(R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{}{}}})",
                               json_quoted(span.name), json_quoted(span.category), rank_, span.track,
                               microseconds(span.begin), microseconds(span.end - span.begin),
                               details.empty() ? "" : ",\"args\":{" + details + "}"));
}

void TraceEvents::add_arrow(std::string_view id, int track, std::int64_t time, bool sends) {
  lines_.push_back(fmt::format(R"({{"ph":"{}","name":"message","cat":"message","id":{},"pid":{},"tid":{},"ts":{}{}}})",
                               sends ? "s" : "f", json_quoted(id), rank_, track, microseconds(time),
                               sends ? "" : ",\"bp\":\"e\""));
}

void write_trace(const std::filesystem::path& file, const std::vector<std::pair<std::string, std::string>>& facts,
                 const TraceEvents& events) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << trace_head(facts);
  const char* separator = "\n";
  for (const std::string& line : events.lines()) out << std::exchange(separator, ",\n") << line;
  finish_file(out, file);
}

void join_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& file) {
  const std::filesystem::path partial = file.string() + ".partial";
  try {
    write_joined(files, partial);
    rename_path(partial, file);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

std::vector<int> disjoint_tracks(std::span<const std::pair<std::int64_t, std::int64_t>> intervals) {
  std::vector<int> tracks;
  std::vector<std::int64_t> ends;  // of the last interval of each track
  for (const auto& [begin, end] : intervals) {
    std::size_t track = 0;
    while (track < ends.size() && ends[track] > begin) ++track;
    if (track == ends.size()) ends.push_back(0);
    ends[track] = end;
    tracks.push_back(static_cast<int>(track));
  }
  return tracks;
}

}  // namespace lyceum
