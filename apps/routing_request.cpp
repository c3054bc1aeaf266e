#include "apps/routing_request.h"

#include <charconv>
#include <cmath>
#include <sstream>
#include <system_error>

#include "core/error.h"

namespace lyceum {
namespace {

namespace options = boost::program_options;

/// Reads comma-separated numbers in any order, "2,1.5".
std::vector<double> thresholds_of(const std::string& text) {
  std::vector<double> thresholds;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    require_usage(error == std::errc() && end == word.data() + word.size() && std::isfinite(value),
                  "--thresholds {}: '{}' is not a number; give losses in nats, such as 2,1.5,1", text, word);
    thresholds.push_back(value);
  }
  return thresholds;
}

/// Reads comma-separated layers and ranges of layers, "0-3,12".
std::vector<std::pair<std::int64_t, std::int64_t>> layer_ranges_of(const std::string& text) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const char* const end = word.data() + word.size();
    std::int64_t first = -1;
    std::from_chars_result read = std::from_chars(word.data(), end, first);
    std::int64_t last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    require_usage(read.ec == std::errc() && read.ptr == end && 0 <= first && first <= last,
                  "--select-layers {}: '{}' is not a layer or a range; give indices such as 0-3,12", text, word);
    ranges.emplace_back(first, last);
  }
  return ranges;
}

}  // namespace

options::options_description routing_options() {
  options::options_description list;
  auto add = list.add_options();
  add("from", options::value<std::int64_t>()->value_name("STEP"),
      "report: first step to sum (default: the last quarter of the steps)");
  add("to", options::value<std::int64_t>()->value_name("STEP"), "report: last step to sum (default: the last one)");
  add("experts", "report: print a column for every expert");
  add("html", options::value<std::string>()->value_name("OUT"),
      "report, domains, flow: also write an HTML page with charts; that of report also shows alarms and losses");
  add("metrics", options::value<std::string>()->value_name("FILE"),
      "report: losses and learning rate for the page (default: metrics.jsonl next to FILE, if it exists)");
  add("title", options::value<std::string>()->value_name("TEXT"), "report: heading of the page");
  add("thresholds", options::value<std::string>()->value_name("X,…"),
      "difficult: thresholds of the loss in A, nats (default: 1, 1.2 … 2 times A's mean)");
  add("layers", "difficult: also print a row for each layer and choice");
  add("json", "difficult, domains, flow: print one JSON object instead of the tables");
  add("csv", options::value<std::string>()->value_name("OUT"), "dump: the file to write (default: -, standard output)");
  add("moves", "dump: write the moves of experts between ranks instead of counts");
  add("every", options::value<std::int64_t>()->value_name("N"),
      "dump: write each N-th record, counted back from the newest (default: 1, all records)");
  add("select-layers", options::value<std::string>()->value_name("L,…"),
      "dump: write these layers and ranges of layers, such as 0-3,12 (default: all)");
  return list;
}

RoutingRequest routing_request(const Arguments& arguments) {
  options::options_description hidden;
  hidden.add_options()("help,h", "")("action", options::value<std::string>())("file", options::value<std::string>())(
      "other", options::value<std::string>());
  const options::options_description visible = routing_options();
  options::options_description all;
  all.add(visible).add(hidden);
  options::positional_options_description positional;
  positional.add("action", 1).add("file", 1).add("other", 1);
  options::variables_map values;
  try {
    options::store(options::command_line_parser(arguments).options(all).positional(positional).run(), values);
  } catch (const options::error& error) {
    fail(ExitCode::usage, "{}; see lyceum routing --help", error.what());
  }
  const auto text = [&](const char* name) { return values.count(name) ? values[name].as<std::string>() : ""; };
  const auto step = [&](const char* name) {
    return values.count(name) ? std::optional(values[name].as<std::int64_t>()) : std::nullopt;
  };
  return {.action = text("action"),
          .file = text("file"),
          .other = text("other"),
          .from = step("from"),
          .to = step("to"),
          .experts = values.count("experts") > 0,
          .moves = values.count("moves") > 0,
          .help = values.count("help") > 0,
          .html = text("html"),
          .metrics = text("metrics"),
          .csv = text("csv"),
          .title = text("title"),
          .thresholds = thresholds_of(text("thresholds")),
          .layers = values.count("layers") > 0,
          .json = values.count("json") > 0,
          .every = values.count("every") ? values["every"].as<std::int64_t>() : 1,
          .selected_layers = layer_ranges_of(text("select-layers"))};
}

}  // namespace lyceum
