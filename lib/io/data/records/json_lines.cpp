#include "io/data/records/json_lines.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "io/data/records/item_bytes.h"
#include "io/data/records/json_record.h"
#include "io/data/records/plain_text.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// Calls each(number, line) for all lines that are not blank. `record`: the number of the first line.
template <class Each>
void for_lines(std::string_view lines, std::int64_t record, const Each& each) {
  for (; !lines.empty(); ++record) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) each(record, line);
  }
}

class JsonLines : public RecordSource {
 public:
  JsonLines(const CorpusItem& item, const RecordPosition& from, const RecordReading& reading)
      : bytes_(item, from.bytes), at_(from), reading_(reading) {}

  /// Returns a block of whole lines, or one that skips a line that is too long.
  std::optional<RecordBlock> next() override {
    std::size_t end = 0;  // end of the last whole line in rest_
    for (bool more = true; end == 0 && more && rest_.size() <= reading_.sizes.document;) {
      const std::size_t searched = rest_.size();
      more = bytes_.read(reading_.sizes.records, rest_);
      const std::size_t newline = std::string_view(rest_).substr(searched).rfind('\n');
      if (newline != std::string_view::npos) end = searched + newline + 1;
    }
    // Only the first line can be too long: the lines after it were added by the last read.
    if (std::min(rest_.find('\n'), rest_.size()) > reading_.sizes.document) return too_long();
    if (end == 0 && !bytes_.probe_cut()) end = rest_.size();  // the last line of the file has no newline
    if (end == 0) return std::nullopt;
    std::string lines = rest_.substr(0, end);
    rest_.erase(0, end);
    const std::int64_t first = at_.record;
    at_.bytes += static_cast<std::int64_t>(end);
    at_.record += std::ranges::count(lines, '\n');
    return RecordBlock{
        .read =
            [lines = std::move(lines), first, key = reading_.text_key, chats = reading_.chats](const RecordSink& sink) {
              for_lines(lines, first, [&](std::int64_t number, std::string_view line) {
                pass_record(number, line, key, chats, sink);
              });
            },
        .end = at_};
  }
  std::int64_t bytes_read() const override { return bytes_.stored_bytes(); }

 private:
  static void pass_record(std::int64_t number, std::string_view line, const std::string& key, bool chats,
                          const RecordSink& sink) {
    Record record{.number = number};
    std::string text;
    try {
      if (chats) {
        record.messages = messages_of_chat(line);
      } else {
        record.text = text = text_of_record(line, key);
        require_input(!text.empty(), "empty");
      }
    } catch (const Error& error) {
      return sink.skip(number, error.what());
    }
    sink.take(record);
  }

  RecordBlock too_long() {
    const std::int64_t number = at_.record++;
    at_.bytes += skip_line();
    return {.read = [number](const RecordSink& sink) { sink.skip(number, "too long"); }, .end = at_};
  }

  /// Drops the first line, of which rest_ has the beginning. Returns its size in bytes.
  std::int64_t skip_line() {
    std::size_t bytes = 0;
    for (;;) {
      const std::size_t newline = rest_.find('\n');
      const std::size_t dropped = newline == std::string::npos ? rest_.size() : newline + 1;
      rest_.erase(0, dropped);
      bytes += dropped;
      if (newline != std::string::npos || !bytes_.read(reading_.sizes.records, rest_)) {
        return static_cast<std::int64_t>(bytes);
      }
    }
  }

  ItemBytes bytes_;  // bytes after `rest_`
  RecordPosition at_;
  const RecordReading& reading_;
  std::string rest_{};  // bytes that were read but are not yet part of a block
};

/// Returns the first line that is not blank, or its beginning if `text` ends within it.
std::string_view first_line(std::string_view text) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  text = text.substr(0, text.find('\n'));
  return text.substr(0, text.find_last_not_of(" \t\r") + 1);
}

/// True if the line begins an array of objects, or an object that extends over several lines.
bool is_beginning_of_other_json(std::string_view line) {
  if (!line.starts_with('[')) return line == "{";
  const std::size_t next = line.find_first_not_of(" \t", 1);
  return next == std::string_view::npos || line[next] == '{';
}

/// True if the first line is a whole JSON list and other lines follow, so that each line may be a record.
bool has_lines_of_lists(std::string_view beginning, std::string_view line) {
  const std::string_view behind = beginning.substr(static_cast<std::size_t>(line.end() - beginning.begin()));
  return behind.find_first_not_of(" \t\r\n") != std::string_view::npos && nlohmann::json::accept(line);
}

/// Accepts files that are not valid UTF-8, since records that are not are skipped one by one.
std::string why_unreadable(std::string_view beginning) {
  const std::string_view line = first_line(beginning);
  if (is_beginning_of_other_json(line) && !has_lines_of_lists(beginning, line))
    return "JSON, but not one record per line";
  if (line.starts_with('{')) return "";
  const std::string why = why_not_text(beginning);
  return why == "not UTF-8" ? "" : why;
}

}  // namespace

bool begins_with_record(std::string beginning, TextStream& stream) {
  constexpr std::size_t longest_line = std::size_t{1} << 20;  // bytes of the first line that are examined
  const std::size_t begun = beginning.size();
  if (!first_line(beginning).starts_with('{')) return false;
  if (beginning.find('\n', beginning.find('{')) == std::string::npos) {
    beginning.resize(longest_line);
    beginning.resize(begun + stream.read(std::span(beginning).subspan(begun)));
  }
  try {
    return parse_record(first_line(beginning)).is_object();
  } catch (const Error&) {
    return beginning.size() == longest_line && first_line(beginning).starts_with("{\"");
  }
}

bool begins_with_list_of_records(std::string_view beginning) {
  if (beginning.starts_with(byte_order_mark)) beginning.remove_prefix(byte_order_mark.size());
  for (const char expected : {'[', '{', '"'}) {
    const std::size_t at = beginning.find_first_not_of(" \t\r\n");
    if (at == std::string_view::npos || beginning[at] != expected) return false;
    beginning.remove_prefix(at + 1);
  }
  return true;
}

const RecordFormat json_lines{.number = 1,
                              .why_unreadable = why_unreadable,
                              .open = [](const CorpusItem& item, const RecordPosition& from,
                                         const RecordReading& reading) -> std::unique_ptr<RecordSource> {
                                return std::make_unique<JsonLines>(item, from, reading);
                              }};

}  // namespace lyceum
