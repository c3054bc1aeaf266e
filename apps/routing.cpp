#include <boost/program_options.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "apps/options.h"
#include "apps/output.h"
#include "apps/routing_model.h"
#include "config/binding.h"
#include "core/error.h"
#include "core/real_text.h"
#include "io/files/atomic_file.h"
#include "io/report/chart.h"
#include "io/report/html.h"
#include "io/routing/difficult.h"
#include "io/routing/log.h"
#include "io/routing/stats.h"
#include "io/routing/text.h"
#include "io/routing/token_log.h"
#include "io/run/metrics.h"
#include "io/run/starts.h"
#include "io/text/table.h"
#include "model/routing/mixture.h"

namespace lyceum {
namespace {

namespace options = boost::program_options;

constexpr const char* routing_about =
    "  report FILE [options]     print tables of tokens per expert; --html also writes a page\n"
    "  dump FILE [--csv OUT]     write every count as comma-separated values, to standard output or a file\n"
    "  difficult A B [options]   show what model B does with tokens that model A finds hard to predict\n"
    "  domains [options]         compare which experts the tokens of several data sets choose\n"
    "  flow [options]            show how activations spread over hidden dimensions, and how long they stay high\n\n"
    "FILE is the routing.h5 of a run, or the run's directory. A row of a table is a layer and a choice: top0 counts "
    "each\n"
    "token under its first choice, top1 under its second. Counts are summed over the records of the selected steps.\n"
    "Output files that exist are replaced.\n"
    "`lyceum eval --token-log` writes A and B, for two models on the same data. The first table compares their\n"
    "losses on the tokens above each threshold, the second shows which widths of experts B chooses above "
    "the\n"
    "highest. domains and flow run the model of a checkpoint, on any mesh, and accept configuration keys as eval "
    "does.";

struct Request {
  std::string action;
  std::filesystem::path file, other;
  std::optional<std::int64_t> from, to;
  bool experts = false, help = false;
  std::filesystem::path html, metrics, csv;
  std::string title;
  std::vector<double> thresholds;
  bool layers = false, json = false;
};

options::options_description described() {
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
  return list;
}

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

Request parsed(const Arguments& arguments) {
  options::options_description hidden;
  hidden.add_options()("help,h", "")("action", options::value<std::string>())("file", options::value<std::string>())(
      "other", options::value<std::string>());
  const options::options_description visible = described();
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
          .help = values.count("help") > 0,
          .html = text("html"),
          .metrics = text("metrics"),
          .csv = text("csv"),
          .title = text("title"),
          .thresholds = thresholds_of(text("thresholds")),
          .layers = values.count("layers") > 0,
          .json = values.count("json") > 0};
}

/// Formats a value of all layers: "3" if all are equal, else "1 to 3".
template <class Value>
std::string spread(const RoutingHistory& history, Value value) {
  const auto [low, high] = std::minmax_element(history.layers.begin(), history.layers.end(),
                                               [&](const auto& a, const auto& b) { return value(a) < value(b); });
  if (value(*low) == value(*high)) return std::to_string(value(*low));
  return fmt::format("{} to {}", value(*low), value(*high));
}

std::vector<std::pair<std::string, std::string>> facts_of(const RoutingHistory& history, RecordRange range) {
  std::vector<std::pair<std::string, std::string>> facts;
  std::set<std::int64_t> layers;
  for (const RoutingHistory::Layer& layer : history.layers) layers.insert(layer.id.layer);
  facts.emplace_back("Layers with routed experts", std::to_string(layers.size()));
  facts.emplace_back("Routed experts of a layer", spread(history, [](const auto& l) { return l.experts; }));
  facts.emplace_back("Experts that a token chooses", spread(history, [](const auto& l) { return l.top_k; }));
  facts.emplace_back("Expert-parallel ranks", spread(history, [](const auto& l) {
                       return 1 + *std::max_element(l.expert_rank.begin(), l.expert_rank.end());
                     }));
  if (const ChosenWidth width = chosen_width(history, range); width.varies()) {
    facts.emplace_back("Mean width of the chosen experts",
                       fmt::format("{} (of all: {})", real_text(width.mean(), ".1f"), real_text(width.even(), ".1f")));
  }
  facts.emplace_back("Routing records", fmt::format("{}; counts are summed over the last {}", history.steps.size(),
                                                    range.end - range.begin));
  return facts;
}

/// Returns facts about the run from metrics.jsonl.
std::vector<std::pair<std::string, std::string>> facts_of(const Metrics& metrics) {
  std::vector<std::pair<std::string, std::string>> facts;
  if (const auto loss = metrics.find("loss"); loss != metrics.end() && !loss->second.empty()) {
    facts.emplace_back("Steps", grouped_number(loss->second.back().step));
  }
  if (const auto speed = metrics.find("tokens_per_second"); speed != metrics.end() && !speed->second.empty()) {
    std::vector<double> values;
    for (const MetricPoint& point : speed->second) {
      if (std::isfinite(point.value)) values.push_back(point.value);
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (!values.empty()) facts.emplace_back("Tokens per second, median", grouped_number(std::llround(*middle)));
  }
  return facts;
}

/// Adds date, program, mesh and configuration of the run from `file` (starts.jsonl), or a note that they are unknown.
void add_start(const std::filesystem::path& file, ReportInput& input) {
  const std::vector<RunStart> starts = std::filesystem::exists(file) ? read_starts(file) : std::vector<RunStart>{};
  if (starts.empty()) {
    input.missing.push_back(
        fmt::format("No {}: date, commit, mesh and configuration of the run are unknown.", file.string()));
    return;
  }
  const RunStart& last = starts.back();
  input.facts.emplace_back("Started", starts.front().date);
  if (starts.size() > 1) {
    input.facts.emplace_back("Last started", fmt::format("{}, after step {}", last.date, grouped_number(last.step)));
  }
  input.facts.emplace_back("Program", last.program);
  input.facts.emplace_back("Mesh", last.mesh);
  input.config = last.config;
}

/// Reads the metrics of a training run, or adds a note to `missing` if there are none.
Metrics metrics_for(const Request& request, std::vector<std::string>& missing) {
  const std::filesystem::path file =
      request.metrics.empty() ? request.file.parent_path() / "metrics.jsonl" : request.metrics;
  if (!request.metrics.empty() || std::filesystem::exists(file)) return read_metrics(file);
  missing.push_back(fmt::format(
      "No {}: loss, learning rate and gradient norm are not shown (--metrics names another file).", file.string()));
  return {};
}

/// The reason why a run has no routing.h5; empty if unknown.
struct MissingRouting {
  bool dense = false;
  std::string text;
};

MissingRouting reason_without_routing(const std::filesystem::path& run) {
  if (!std::filesystem::exists(run / "starts.jsonl")) return {};
  const std::vector<RunStart> starts = read_starts(run / "starts.jsonl");
  if (starts.empty()) return {};
  const Config config = parse_config(starts.back().config, (run / "starts.jsonl").string()).config;
  if (mixtures_of(config).empty()) {
    return {.dense = true, .text = "The model is dense: it has no router, so there is nothing to route."};
  }
  if (config.routing.every > 0) return {};
  return {.text = "The run recorded no routing: routing.every is 0."};
}

/// Writes the HTML page. If `history` has no records, the page states `why`.
void write_page(const Request& request, const RoutingHistory& history, std::optional<RecordRange> range,
                const std::string& why = "") {
  const std::filesystem::path run = std::filesystem::absolute(request.file).lexically_normal().parent_path();
  ReportInput input{.title = request.title.empty() ? "Run " + run.filename().string() : request.title};
  Metrics metrics = metrics_for(request, input.missing);
  const std::vector<MetricPoint>& entropy = metrics["unigram_entropy"];
  if (!entropy.empty()) input.unigram_entropy = entropy.back().value;
  if (range) input.facts = facts_of(history, *range);
  for (auto& fact : facts_of(metrics)) input.facts.push_back(std::move(fact));
  add_start(request.file.parent_path() / "starts.jsonl", input);
  input.train = metrics["loss"];
  input.valid = metrics["valid_loss"];
  input.lr = metrics["lr"];
  input.grad_norm = metrics["grad_norm"];
  input.skipped = metrics["skipped"];
  input.outliers = metrics["outliers"];
  for (const auto& [key, points] : metrics) {
    if (key.starts_with("layer_") || key == "largest_logit") input.layers[key] = points;
  }
  input.routing = history;
  input.range = range;
  if (!why.empty()) input.no_routing = why;
  replace_file(request.html, html_report(input));
  print(fmt::format("\nwrote {}\n", request.html.string()));
}

void report(const Request& request) {
  require_usage(request.csv.empty(), "--csv applies only to lyceum routing dump");
  require_usage(!request.html.empty() || (request.metrics.empty() && request.title.empty()),
                "--metrics and --title need --html OUT");
  if (!std::filesystem::exists(request.file)) {
    const MissingRouting none = reason_without_routing(request.file.parent_path());
    if (none.dense || (!none.text.empty() && !request.html.empty())) {
      print(none.text + "\n");
      if (!request.html.empty()) write_page(request, {}, {}, none.text);
      return;
    }
  }
  const RoutingHistory history = read_routing(request.file);
  const RecordRange range = select_records(history, request.from, request.to);
  print(routing_table(history, range, request.experts));
  if (!request.html.empty()) write_page(request, history, range);
}

void dump(const Request& request) {
  if (!std::filesystem::exists(request.file)) {
    const MissingRouting none = reason_without_routing(request.file.parent_path());
    require_usage(!none.dense, "{}: {}", request.file.string(), none.text);
  }
  const RoutingHistory history = read_routing(request.file);
  if (request.csv.empty() || request.csv == "-") {
    write_routing_csv(history, std::cout);
    flush_output();
    return;
  }
  std::ostringstream csv;
  write_routing_csv(history, csv);
  replace_file(request.csv, csv.str());
  print(fmt::format("wrote {}: {} of {}\n", request.csv.string(), count_text(std::ssize(history.steps), "record"),
                    count_text(std::ssize(history.layers), "layer")));
}

void difficult(const Request& request) {
  require_usage(!request.other.empty(), "difficult needs two files that lyceum eval --token-log wrote: A and B");
  const TokenLogFile a(request.file), b(request.other);
  const DifficultTokens tokens = difficult_tokens(a, b, request.thresholds);
  print(request.json ? difficult_json(tokens) : difficult_text(tokens, request.layers));
}

}  // namespace

CommandHelp routing_help() {
  options::options_description all = described();
  const options::options_description of_models = routing_model_options();
  for (const auto& option : of_models.options()) all.add(option);
  return describe_configured(
      "[mpirun -n RANKS] lyceum routing report FILE | dump FILE | difficult A B | domains … | flow …", routing_about,
      all);
}

int routing_command(const MpiSession& session, const Arguments& arguments) {
  if (!arguments.empty() && (arguments.front() == "domains" || arguments.front() == "flow")) {
    const Arguments own(arguments.begin() + 1, arguments.end());
    return arguments.front() == "flow" ? routing_flow(session, own) : routing_domains(session, own);
  }
  Request request = parsed(arguments);
  if (request.help) {
    print(routing_help().text);
    return static_cast<int>(ExitCode::done);
  }
  require_usage(request.action != "domains" && request.action != "flow",
                "{0} must come before its options: lyceum routing {0} …", request.action);
  const bool compares = request.action == "difficult";
  require_usage(compares || request.action == "report" || request.action == "dump",
                "no such command \"{}\": expected report, dump, difficult, domains or flow; see lyceum routing --help",
                request.action);
  require_usage(compares || (request.thresholds.empty() && !request.layers && !request.json),
                "--thresholds, --layers and --json apply only to lyceum routing difficult");
  const bool reports = request.from || request.to || request.experts || !request.html.empty() ||
                       !request.metrics.empty() || !request.title.empty();
  require_usage(!reports || request.action == "report",
                "--from, --to, --experts, --html, --metrics and --title apply only to lyceum routing report");
  require_usage(request.csv.empty() || request.action == "dump", "--csv applies only to lyceum routing dump");
  if (compares) {
    difficult(request);
    return static_cast<int>(ExitCode::done);
  }
  require_usage(!request.file.empty(), "{} needs the run's routing.h5", request.action);
  if (request.action == "dump" && request.other == "-" && request.csv.empty()) request.other.swap(request.csv);
  require_usage(request.other.empty(), "{} reads one file: remove {}", request.action, request.other.string());
  if (std::filesystem::is_directory(request.file)) request.file /= "routing.h5";
  request.action == "report" ? report(request) : dump(request);
  return static_cast<int>(ExitCode::done);
}

}  // namespace lyceum
