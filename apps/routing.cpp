#include <boost/program_options.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/options.h"
#include "apps/output.h"
#include "apps/routing_model.h"
#include "apps/routing_request.h"
#include "apps/written_files.h"
#include "config/binding.h"
#include "core/error.h"
#include "core/real_text.h"
#include "io/files/atomic_file.h"
#include "io/files/partial_file.h"
#include "io/report/chart.h"
#include "io/report/html.h"
#include "io/routing/csv.h"
#include "io/routing/difficult.h"
#include "io/routing/merge.h"
#include "io/routing/moves.h"
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
    "  dump FILE [--csv OUT]     write every count as comma-separated values, to standard output or a file; --moves: "
    "when\n"
    "                            experts changed ranks\n"
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

/// Formats a value of all layers: "3" if all are equal, else "1 to 3".
template <class Value>
std::string spread(const RoutingReader& log, Value value) {
  const auto [low, high] = std::minmax_element(log.routers().begin(), log.routers().end(),
                                               [&](const auto& a, const auto& b) { return value(a) < value(b); });
  if (value(*low) == value(*high)) return std::to_string(value(*low));
  return fmt::format("{} to {}", value(*low), value(*high));
}

std::vector<std::pair<std::string, std::string>> facts_of(const RoutingReader& log, RecordRange range) {
  std::vector<std::pair<std::string, std::string>> facts;
  std::set<std::int64_t> layers;
  for (const RoutingHistory::Layer& layer : log.routers()) layers.insert(layer.id.layer);
  facts.emplace_back("Layers with routed experts", std::to_string(layers.size()));
  facts.emplace_back("Routed experts of a layer", spread(log, [](const auto& l) { return l.experts; }));
  facts.emplace_back("Experts that a token chooses", spread(log, [](const auto& l) { return l.top_k; }));
  facts.emplace_back("Expert-parallel ranks", spread(log, [](const auto& l) {
                       return 1 + *std::max_element(l.expert_rank.begin(), l.expert_rank.end());
                     }));
  const RoutingHistory sum = merged_records(log, range);
  if (const ChosenWidth width = chosen_width(sum, {0, 1}); width.varies()) {
    facts.emplace_back("Mean width of the chosen experts",
                       fmt::format("{} (of all: {})", real_text(width.mean(), ".1f"), real_text(width.even(), ".1f")));
  }
  if (const KnownMoves moves = known_moves(log); moves.end > 0) {
    std::string text = grouped_number(static_cast<std::int64_t>(moves.count()));
    if (moves.count() > 0) {
      const ExpertMove last = log.read_moves({moves.end - 1, moves.end}).front();
      text += fmt::format(", the last after step {}", grouped_number(last.step));
    }
    if (moves.first > 0) text += "; earlier ones are unknown";
    facts.emplace_back("Moves of experts between ranks", text);
  }
  std::int64_t replicas = 0;
  for (const RoutingHistory::Layer& layer : sum.layers) {
    const ReplicaCounts counts = replica_counts(layer, {0, 1});
    replicas += std::reduce(counts.replicas.begin(), counts.replicas.end());
  }
  if (replicas > 0) facts.emplace_back("Replicas of experts, over micro-batches", grouped_number(replicas));
  facts.emplace_back("Routing records",
                     fmt::format("{}; counts are summed over the last {}", log.steps().size(), range.size()));
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
  if (const auto stages = metrics.find("stage"); stages != metrics.end()) {
    std::string text;
    double last = 0;
    for (const MetricPoint& point : stages->second) {
      if (point.value == last) continue;
      last = point.value;
      text += fmt::format("{}{:.0f} from step {}", text.empty() ? "" : ", ", last, grouped_number(point.step));
    }
    facts.emplace_back("Training stages", text);
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
Metrics metrics_for(const RoutingRequest& request, std::vector<std::string>& missing) {
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

/// Writes the HTML page. If `log` has no records, the page states `why`.
void write_page(const RoutingRequest& request, const RoutingReader& log, std::optional<RecordRange> range,
                const std::string& why = "") {
  const std::filesystem::path run = std::filesystem::absolute(request.file).lexically_normal().parent_path();
  ReportInput input{.title = request.title.empty() ? "Run " + run.filename().string() : request.title};
  Metrics metrics = metrics_for(request, input.missing);
  const std::vector<MetricPoint>& entropy = metrics["unigram_entropy"];
  if (!entropy.empty()) input.unigram_entropy = entropy.back().value;
  if (range) input.facts = facts_of(log, *range);
  for (auto& fact : facts_of(metrics)) input.facts.push_back(std::move(fact));
  add_start(request.file.parent_path() / "starts.jsonl", input);
  input.train = metrics["loss"];
  input.valid = metrics["valid_loss"];
  input.mtp = metrics["mtp_loss"];
  input.lr = metrics["lr"];
  input.grad_norm = metrics["grad_norm"];
  input.skipped = metrics["skipped"];
  input.outliers = metrics["outliers"];
  input.rank_imbalance = metrics["rank_imbalance"];
  input.rank_imbalance_max = metrics["rank_imbalance_max"];
  input.rank_imbalance_without_replicas = metrics["rank_imbalance_without_replicas"];
  for (const auto& [key, points] : metrics) {
    if (key.starts_with("layer_") || key == "largest_logit") input.layers[key] = points;
  }
  input.routing = log;
  input.range = range;
  if (!why.empty()) input.no_routing = why;
  replace_file(request.html, html_report(input));
  print(fmt::format("\nwrote {}\n", request.html.string()));
}

void report(const RoutingRequest& request) {
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
  const RoutingReader log(request.file);
  const RecordRange range = select_records(log, request.from, request.to);
  print(routing_table(log, range, request.experts));
  if (!request.html.empty()) write_page(request, log, range);
}

void dump(const RoutingRequest& request) {
  if (!std::filesystem::exists(request.file)) {
    const MissingRouting none = reason_without_routing(request.file.parent_path());
    require_usage(!none.dense, "{}: {}", request.file.string(), none.text);
  }
  const CsvSelection selection{.every = request.every, .layers = request.selected_layers};
  const RoutingReader log(request.file);
  const auto write_csv = [&](const std::function<void(std::string_view)>& write) {
    if (request.moves) {
      const MovesCsvSize size = write_moves_csv(log, selection, write);
      if (size.unknown > 0) {
        std::cerr << fmt::format(
            "note: {}: {} left out, since a version that does not record moves has continued the file\n",
            request.file.string(), count_text(size.unknown, "older move"));
      }
      return count_text(size.moves, "move");
    }
    const CsvSize size = write_routing_csv(log, selection, write);
    return fmt::format("{} of {}", count_text(size.records, "record"), count_text(size.routers, "layer"));
  };
  if (request.csv.empty() || request.csv == "-") {
    write_csv([](std::string_view text) {
      std::cout.write(text.data(), static_cast<std::streamsize>(text.size()));
      if (!std::cout) flush_output();  // reports the error
    });
    flush_output();
    return;
  }
  PartialFile file(request.csv.string());
  const std::string written = write_csv([&](std::string_view text) { file.write(text.data(), text.size()); });
  file.close();
  file.publish();
  print(fmt::format("wrote {}: {}\n", request.csv.string(), written));
}

void difficult(const RoutingRequest& request) {
  require_usage(!request.other.empty(), "difficult needs two files that lyceum eval --token-log wrote: A and B");
  const TokenLogFile a(request.file), b(request.other);
  const DifficultTokens tokens = difficult_tokens(a, b, request.thresholds);
  print(request.json ? difficult_json(tokens) : difficult_text(tokens, request.layers));
}

}  // namespace

CommandHelp routing_help() {
  options::options_description all = routing_options();
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
  RoutingRequest request = routing_request(arguments);
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
  require_usage((request.csv.empty() && request.every == 1 && request.selected_layers.empty() && !request.moves) ||
                    request.action == "dump",
                "--csv, --every, --moves and --select-layers apply only to lyceum routing dump");
  require_usage(request.every >= 1, "--every {}: must be at least 1", request.every);
  require_usage(request.every == 1 || !request.moves, "--every selects records, and --moves writes none: give one");
  if (compares) {
    difficult(request);
    return static_cast<int>(ExitCode::done);
  }
  require_usage(!request.file.empty(), "{} needs the run's routing.h5", request.action);
  if (request.action == "dump" && request.other == "-" && request.csv.empty()) request.other.swap(request.csv);
  require_usage(request.other.empty(), "{} reads one file: remove {}", request.action, request.other.string());
  if (std::filesystem::is_directory(request.file)) request.file /= "routing.h5";
  require_harmless(
      std::array{WrittenFile{"--html", request.html}, WrittenFile{"--csv", request.csv == "-" ? "" : request.csv}},
      std::array{request.file, request.metrics});
  request.action == "report" ? report(request) : dump(request);
  return static_cast<int>(ExitCode::done);
}

}  // namespace lyceum
