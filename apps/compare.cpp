#include <boost/program_options.hpp>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/options.h"
#include "apps/output.h"
#include "apps/written_files.h"
#include "config/binding.h"
#include "config/differing_keys.h"
#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/report/comparison.h"
#include "io/report/comparison_page.h"
#include "io/run/metric_lines.h"
#include "io/run/starts.h"
#include "io/run/summary.h"

namespace lyceum {
namespace {

namespace po = boost::program_options;
namespace fs = std::filesystem;

struct CompareRequest {
  std::vector<std::string> runs;
  std::optional<std::vector<std::int64_t>> steps, tokens;  // nothing: chosen from the runs
  std::string html, title;
  bool json = false, help = false;
};

po::options_description compare_options() {
  po::options_description list;
  auto add = list.add_options();
  add("html", po::value<std::string>()->value_name("OUT"), "also write an HTML page with the curves of all runs");
  add("title", po::value<std::string>()->value_name("TEXT"), "heading of the page");
  add("json", "print one JSON object instead of the tables");
  add("steps", po::value<std::string>()->value_name("N,…"),
      "steps at which losses are compared (default: 1/8, 1/4, 1/2 and all of the steps that every run has made)");
  add("tokens", po::value<std::string>()->value_name("N,…"),
      "the same for numbers of trained tokens, such as 5000000,2e7");
  return list;
}

/// Reads ascending positive whole numbers, "1000,2e6". Throws a usage Error that names the option.
std::vector<std::int64_t> positions_of(const std::string& option, const std::string& text) {
  std::vector<std::int64_t> positions;
  std::istringstream words(text + ",");
  for (std::string word; std::getline(words, word, ',');) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool number = error == std::errc() && end == word.data() + word.size() && value >= 1 && value < 9e15;
    require_usage(number && value == static_cast<double>(static_cast<std::int64_t>(value)),
                  "--{} {}: '{}' is not a whole number of 1 or more", option, text, word);
    positions.push_back(static_cast<std::int64_t>(value));
    require_usage(positions.size() == 1 || positions[positions.size() - 2] < positions.back(),
                  "--{} {}: the numbers must ascend", option, text);
  }
  return positions;
}

CompareRequest parse_compare(const Arguments& arguments) {
  po::options_description all = compare_options();
  all.add_options()("help,h", "")("run", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("run", -1);
  po::variables_map values;
  try {
    po::store(po::command_line_parser(arguments).options(all).positional(positional).run(), values);
  } catch (const po::error& error) {
    fail(ExitCode::usage, "{}; see lyceum compare --help", error.what());
  }
  const auto text = [&](const char* name) { return values.count(name) ? values[name].as<std::string>() : ""; };
  CompareRequest request{.runs = {},
                         .steps = {},
                         .tokens = {},
                         .html = text("html"),
                         .title = text("title"),
                         .json = values.count("json") > 0,
                         .help = values.count("help") > 0};
  if (values.count("run")) request.runs = values["run"].as<std::vector<std::string>>();
  if (values.count("steps")) request.steps = positions_of("steps", text("steps"));
  if (values.count("tokens")) request.tokens = positions_of("tokens", text("tokens"));
  return request;
}

/// Returns the metrics file of a run, which may be given as its folder. Throws a bad_input Error if there is none.
std::string metrics_file(const std::string& run) {
  std::error_code ignored;
  const bool folder = fs::is_directory(run, ignored);
  const fs::path file = folder ? fs::path(run) / "metrics.jsonl" : fs::path(run);
  require_input(fs::exists(file, ignored), "{}: {}: give the folder of a run or its metrics.jsonl", run,
                folder ? "this folder has no metrics.jsonl" : "no such run");
  return file.string();
}

/// Adds program, mesh and configuration of the last start of each run, if its starts.jsonl has one.
void add_starts(Comparison& comparison) {
  std::vector<Config> configs;
  std::vector<std::size_t> owners;  // the runs of `configs`
  for (std::size_t r = 0; r < comparison.runs.size(); ++r) {
    ComparedRun& run = comparison.runs[r];
    const fs::path file = fs::path(run.file).parent_path() / "starts.jsonl";
    const std::vector<RunStart> starts = fs::exists(file) ? read_starts(file) : std::vector<RunStart>{};
    if (starts.empty()) continue;
    run.program = starts.back().program;
    run.mesh = starts.back().mesh;
    run.configured = true;
    configs.push_back(parse_config_leniently(starts.back().config));
    owners.push_back(r);
  }
  for (const DifferingKey& row : differing_keys(configs)) {
    std::vector<std::string> values(comparison.runs.size());
    for (std::size_t i = 0; i < owners.size(); ++i) values[owners[i]] = row.values[i];
    comparison.settings.emplace_back(row.key, std::move(values));
  }
}

Comparison compare_runs(const CompareRequest& request) {
  std::vector<std::string> files;
  for (const std::string& run : request.runs) files.push_back(metrics_file(run));
  std::vector<MetricsExtent> extents;
  for (const std::string& file : files) extents.push_back(measure_metrics(file));
  const std::vector<std::int64_t> steps = request.steps.value_or(common_steps(extents));
  const std::vector<std::int64_t> tokens = request.tokens.value_or(common_tokens(extents));
  const std::vector<std::string> names = run_names(files);
  Comparison comparison;
  for (std::size_t r = 0; r < files.size(); ++r) {
    comparison.runs.push_back(
        {.name = names[r], .file = files[r], .summary = summarize_run(files[r], extents[r], steps, tokens)});
  }
  add_starts(comparison);
  return comparison;
}

}  // namespace

CommandHelp compare_help() {
  return describe_command(
      "lyceum compare RUN… [options]",
      "Shows training runs side by side: losses at equal steps and at equal numbers of tokens, validation losses,\n"
      "speed, load balance, skipped steps, and the configuration keys that differ. A RUN is the folder of a run\n"
      "or its metrics.jsonl. Runs may still be training, and may have different lengths. A loss at a step is the\n"
      "mean over the last 5 % of the steps before it. An output file that exists is replaced.",
      compare_options());
}

int compare_command(const Arguments& arguments) {
  const CompareRequest request = parse_compare(arguments);
  if (request.help) {
    print(compare_help().text);
    return static_cast<int>(ExitCode::done);
  }
  require_usage(!request.runs.empty(), "name the runs to compare: lyceum compare RUN… [--html OUT]");
  require_usage(request.title.empty() || !request.html.empty(), "--title needs --html OUT");
  const std::vector<fs::path> read(request.runs.begin(), request.runs.end());
  require_harmless(std::array{WrittenFile{"--html", request.html}}, read);
  const Comparison comparison = compare_runs(request);
  print(request.json ? comparison_json(comparison) : comparison_text(comparison));
  if (!request.html.empty()) {
    const std::string title = request.title.empty() ? fmt::format("{} runs", request.runs.size()) : request.title;
    replace_file(request.html, comparison_page(comparison, title));
    if (!request.json) print(fmt::format("\nwrote {}\n", request.html));
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace lyceum
