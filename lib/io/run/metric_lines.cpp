#include "io/run/metric_lines.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <limits>
#include <utility>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {
namespace {

using Json = nlohmann::json;

constexpr double not_finite = std::numeric_limits<double>::quiet_NaN();

/// Receives the tokens of a line from the library's parser and stores the top-level numbers of some keys. A JSON value
/// for the whole line would take several times as long to build.
class LineNumbers final : public nlohmann::json_sax<Json> {
 public:
  explicit LineNumbers(std::span<const std::string_view> keys) : keys_(keys), values_(keys.size()) {}

  /// Parses a line. Returns false if it is not an object with an integer step.
  bool parse(const std::string& line) {
    clear();
    if (!Json::sax_parse(line, this)) {
      // Names that are not UTF-8 are written as escapes that the library rejects.
      clear();
      const Json object = parse_json<Json>(line, /*allow_exceptions=*/false);
      if (object.is_discarded() || !Json::sax_parse(with_plain_names(object), this)) return false;
    }
    return object_ && step_.has_value();
  }
  std::int64_t step() const { return *step_; }
  MetricValues values() const { return values_; }

  bool null() override { return store(not_finite); }
  bool boolean(bool) override { return value(); }
  bool number_integer(std::int64_t number) override {
    if (at_step()) step_ = number;
    return store(static_cast<double>(number));
  }
  bool number_unsigned(std::uint64_t number) override {
    if (at_step() && std::in_range<std::int64_t>(number)) step_ = static_cast<std::int64_t>(number);
    return store(static_cast<double>(number));
  }
  bool number_float(double number, const std::string&) override { return store(number); }
  bool string(std::string&) override { return value(); }
  bool binary(Json::binary_t&) override { return value(); }
  bool start_object(std::size_t) override {
    if (depth_ == 0) object_ = true;
    return open();
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    is_step_ = name == "step";
    const auto found = std::ranges::find(keys_, name);
    index_ = found == keys_.end() ? -1 : found - keys_.begin();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  void clear() {
    std::ranges::fill(values_, std::nullopt);
    step_.reset();
    object_ = is_step_ = false;
    depth_ = 0;
    index_ = -1;
  }
  /// Returns the text of an object with only the numbers and nulls whose names are UTF-8.
  static std::string with_plain_names(const Json& object) {
    if (!object.is_object()) return "[]";
    Json plain = Json::object();
    for (const auto& [name, member] : object.items()) {
      if (is_utf8(name) && (member.is_number() || member.is_null())) plain[name] = member;
    }
    return json_text(plain);
  }
  bool at_step() const { return depth_ == 1 && is_step_; }
  bool store(double number) {
    if (depth_ == 1 && index_ >= 0) values_[static_cast<std::size_t>(index_)] = number;
    return value();
  }
  bool value() {
    if (depth_ == 1) index_ = -1;
    return true;
  }
  bool open() {
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return value();
  }

  std::span<const std::string_view> keys_;
  std::vector<std::optional<double>> values_;
  std::optional<std::int64_t> step_;
  bool object_ = false, is_step_ = false;
  int depth_ = 0;
  std::ptrdiff_t index_ = -1;  // of the current key among `keys_`; -1: not wanted
};

/// Returns the step of a line as MetricsLog writes it, without parsing the rest; nothing if the line begins otherwise.
std::optional<std::int64_t> leading_step(std::string_view line) {
  constexpr std::string_view begin = "{\"step\":";
  if (!line.starts_with(begin)) return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data() + begin.size(), line.data() + line.size(), step);
  const bool complete = error == std::errc() && end != line.data() + line.size() && (*end == ',' || *end == '}');
  return complete ? std::optional(step) : std::nullopt;
}

}  // namespace

void for_each_line(const std::filesystem::path& file,
                   const std::function<bool(const std::string&, std::int64_t, std::int64_t)>& use) {
  std::ifstream in = open_to_read(file);
  require_input(in.good(), "{}: cannot be opened: {}", file.string(), system_reason(errno));
  std::int64_t bytes = 0, number = 0;
  for (std::string line; std::getline(in, line) && !in.eof() && line.find('\0') == std::string::npos;) {
    bytes += static_cast<std::int64_t>(line.size()) + 1;
    if (!use(line, bytes, ++number)) return;
  }
  require_input(!in.bad(), "{}: cannot be read", file.string());
}

void fail_damaged_line(const std::filesystem::path& file, std::int64_t number) {
  fail(ExitCode::bad_input,
       "{}: line {} is damaged, since it is not an object with a step: remove the line or the file", file.string(),
       number);
}

MetricsExtent measure_metrics(const std::filesystem::path& file) {
  constexpr std::array<std::string_view, 1> keys{"tokens"};
  MetricsExtent extent;
  LineNumbers numbers(keys);
  std::string last_line;
  std::int64_t last = 0, lowest = 0;
  for_each_line(file, [&](const std::string& line, std::int64_t, std::int64_t number) {
    std::optional<std::int64_t> step = leading_step(line);
    if (!step) {
      if (!numbers.parse(line)) fail_damaged_line(file, number);
      step = numbers.step();
    }
    if (number > 1 && *step <= last) extent.restarts.push_back({.line = number, .step = *step});
    lowest = number == 1 ? *step : std::min(lowest, *step);
    last = *step;
    extent.lines = number;
    last_line = line;
    return true;
  });
  if (extent.lines == 0) return extent;
  extent.first_step = lowest;
  extent.last_step = last;
  if (!numbers.parse(last_line)) fail_damaged_line(file, extent.lines);
  extent.tokens = numbers.values().front();
  return extent;
}

void for_each_step(const std::filesystem::path& file, const MetricsExtent& extent,
                   std::span<const std::string_view> keys, const std::function<void(std::int64_t, MetricValues)>& use) {
  // The lowest step of each restart and the ones after it: earlier lines from that step on are superseded.
  std::vector<std::int64_t> lowest(extent.restarts.size() + 1, std::numeric_limits<std::int64_t>::max());
  for (std::size_t i = extent.restarts.size(); i-- > 0;) lowest[i] = std::min(lowest[i + 1], extent.restarts[i].step);
  LineNumbers numbers(keys);
  std::size_t later = 0;  // the first restart after the current line
  for_each_line(file, [&](const std::string& line, std::int64_t, std::int64_t number) {
    if (number > extent.lines) return false;
    if (!numbers.parse(line)) fail_damaged_line(file, number);
    while (later < extent.restarts.size() && extent.restarts[later].line <= number) ++later;
    if (numbers.step() < lowest[later]) use(numbers.step(), numbers.values());
    return true;
  });
}

}  // namespace lyceum
