#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "apps/options.h"
#include "apps/output.h"
#include "apps/run_config.h"
#include "apps/written_files.h"
#include "config/check.h"
#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/report/timeline_svg.h"
#include "io/text/table.h"
#include "model/adapters.h"
#include "model/model_tensors.h"
#include "optim/weight_rule.h"
#include "plan/checkpoint_list.h"
#include "plan/report.h"
#include "plan/stage_plans.h"
#include "plan/variants.h"
#include "train/run/device_peak.h"
#include "train/run/saves.h"
#include "train/setup/machine.h"
#include "train/setup/run_setup.h"
#include "train/step/schedule.h"

namespace lyceum {

namespace po = boost::program_options;

namespace {

constexpr const char* plan_about =
    "Computes what a model costs on a mesh before anything runs: parameters, FLOPs, memory per rank, communication\n"
    "volume of every group, the pipeline's timeline and, with rates, the time of a step. --world finds the best mesh;\n"
    "keys on the command line stay fixed. Needs no data, no ranks and little memory.";

/// Returns the number of ranks of the configured mesh: that of --ranks, else of mpirun, else the smallest possible one.
int ranks_of(const Config& config, const MpiSession& session, const po::variables_map& values) {
  if (values.count("ranks")) return values["ranks"].as<int>();
  if (session.size() > 1) return session.size();
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t stage = std::lcm(std::int64_t{std::max(parallel.tensor, 1)},
                                      std::int64_t{std::max(parallel.expert, 1)} * std::max(parallel.expert_tensor, 1));
  return static_cast<int>(std::min<std::int64_t>(stage * std::max(parallel.pipeline, 1), 1 << 30));
}

std::set<std::string> given_on_command_line(const LoadedConfig& loaded) {
  std::set<std::string> keys;
  for (const auto& [key, origin] : loaded.origin) {
    if (origin.file.empty()) keys.insert(key);
  }
  return keys;
}

/// Number of meshes that a search lists.
constexpr std::size_t best_meshes = 5;

/// Limit of the micro-batches in a drawing, beyond which it is too narrow to read.
constexpr int most_drawn = 16;

/// Returns the unit of a drawing's time axis and the factor from the plan's numbers: milliseconds if the plan has a
/// time, else FLOPs of a rank.
std::pair<std::string, double> drawn_unit(const MeshPlan& plan) {
  if (plan.time) return {"ms", 1e3};
  return plan.timeline.makespan() >= 1e6 ? std::pair{"TFLOP", 1e-6} : std::pair{"GFLOP", 1e-3};
}

void write_svg(const MeshPlan& plan, const std::string& file) {
  std::string title = plan.text();
  Timeline timeline = drawn_timeline(plan, most_drawn);
  if (timeline.shape.microbatches < plan.timeline.shape.microbatches) {
    title += fmt::format(" ({} of {} micro-batches)", timeline.shape.microbatches, plan.timeline.shape.microbatches);
  }
  const auto [unit, scale] = drawn_unit(plan);
  for (auto& rank : timeline.ranks) {
    for (TimedAction& action : rank) {
      action.start *= scale;
      action.end *= scale;
    }
  }
  replace_file(file, timeline_svg(timeline, title, unit));
}

po::options_description plan_options() {
  po::options_description options;
  auto add = options.add_options();
  add("world", po::value<int>()->value_name("N"), "find the best mesh of N ranks");
  add("ranks", po::value<int>()->value_name("N"), "plan the configured mesh on N ranks");
  add("cluster", po::value<std::string>()->value_name("FILE"),
      "rates and memory of a cluster, see configs/clusters/; default of --world: nodes with 8 H100");
  add("tokens", po::value<std::string>()->value_name("N"),
      "with rates: report the time to train on N tokens, for example 300B or 2T; default: those of run.steps");
  add("headroom", po::value<double>()->value_name("F")->default_value(0, "0"),
      "with rates: share of a rank's memory to keep free, for example 0.1");
  add("measure", "measure the rate of matrix products on this machine, with all cores as one rank");
  add("load", po::value<std::string>()->value_name("FILE.h5|zipf:S"),
      "load of the experts: the routing log of a run, or shares of experts that fall as rank^-S; default: even");
  add("svg", po::value<std::string>()->value_name("FILE"), "write a drawing of the pipeline's timeline to a file");
  add("json", "print JSON");
  return options;
}

/// Reads a number of tokens: "300B" is 3e11.
std::optional<double> token_count(const std::string& text) {
  char* end = nullptr;
  double count = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const std::map<std::string, double> units{{"", 1}, {"k", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}};
  if (end == text.c_str() || !units.contains(unit)) return std::nullopt;
  count *= units.at(unit);
  return count >= 1 && std::isfinite(count) ? std::optional(count) : std::nullopt;
}

double tokens_of_run(const Config& config, const po::variables_map& values) {
  if (values.count("tokens")) return *token_count(values["tokens"].as<std::string>());
  double tokens = 0;
  for (int stage = 1; stage <= stage_count(config); ++stage) {
    const BatchConfig batch = config_of_stage(config, stage).batch;
    const std::int64_t steps = last_step_of(config, stage) - first_step_of(config, stage) + 1;
    tokens += static_cast<double>(steps) * static_cast<double>(batch.global * batch.seq_len);
  }
  return tokens;
}

/// Returns the contradictions among the options themselves.
std::vector<std::string> option_mistakes(const po::variables_map& values) {
  std::vector<std::string> wrong;
  if (values.count("world") && values.count("ranks")) {
    wrong.emplace_back("--world finds a mesh, --ranks plans the configured one: give only one of them");
  }
  for (const char* option : {"world", "ranks"}) {
    if (!values.count(option)) continue;
    const int ranks = values[option].as<int>();
    if (ranks < 1) wrong.push_back(fmt::format("--{} = {}: must be at least 1", option, ranks));
    if (ranks > most_ranks) wrong.push_back(fmt::format("--{} = {}: must be at most {}", option, ranks, most_ranks));
  }
  if (values.count("measure") && !values.count("cluster") && !values.count("world")) {
    wrong.emplace_back(
        "--measure needs --cluster FILE or --world N: it replaces the rate of matrix products of that cluster");
  }
  if (values.count("tokens") && !token_count(values["tokens"].as<std::string>())) {
    wrong.push_back(fmt::format("--tokens {}: must be a number above 0, optionally followed by k, M, B or T",
                                values["tokens"].as<std::string>()));
  }
  if (const double headroom = values["headroom"].as<double>(); !(headroom >= 0 && headroom < 1)) {
    wrong.push_back(fmt::format("--headroom {}: must be at least 0 and below 1", headroom));
  }
  for (const char* option : {"tokens", "headroom"}) {
    if (values.count(option) && !values[option].defaulted() && !values.count("cluster") && !values.count("world")) {
      wrong.push_back(fmt::format(
          "--{} needs --cluster FILE or --world N: without them neither times nor memory are known", option));
    }
  }
  if (values.count("svg")) {
    const std::filesystem::path file = values["svg"].as<std::string>();
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    if (std::filesystem::is_directory(file) || ::access(folder.c_str(), W_OK | X_OK) != 0) {
      wrong.push_back(fmt::format("--svg {}: cannot write this file", file.string()));
    }
  }
  return wrong;
}

/// Throws a usage Error if --svg would replace a file that is read.
void check_output(const ParsedOptions& parsed) {
  const po::variables_map& values = parsed.values;
  if (!values.count("svg")) return;
  std::vector<std::filesystem::path> read = configuration_files(parsed.rest);
  for (const char* option : {"cluster", "load"}) {
    if (values.count(option)) read.emplace_back(values[option].as<std::string>());
  }
  require_harmless(std::array{WrittenFile{"--svg", values["svg"].as<std::string>()}}, read);
}

/// Throws one usage Error with all mistakes in the options and the configuration.
void check(const LoadedConfig& loaded, const po::variables_map& values, int world) {
  std::vector<std::string> wrong = option_mistakes(values);
  const bool searches = values.count("world") > 0, counts = world >= 1 && (!searches || world <= most_ranks);
  wrong.insert(wrong.end(), loaded.mistakes.begin(), loaded.mistakes.end());
  if (!counts) {
    std::ranges::move(contradictions(without_mesh(loaded.config), 1), std::back_inserter(wrong));
  } else if (!searches) {
    std::ranges::move(contradictions(loaded.config, world), std::back_inserter(wrong));
  } else if (!wrong.empty()) {  // without other mistakes, the search itself reports these
    const int node_ranks = default_cluster(loaded.config.run.precision).node_ranks;
    std::ranges::move(search_problems(loaded.config, world, node_ranks, given_on_command_line(loaded)),
                      std::back_inserter(wrong));
  }
  require_none(wrong);
}

/// Returns the cluster from which times are estimated; nothing if no option requests times.
std::optional<Cluster> rates(const RunConfig& run, const po::variables_map& values) {
  std::optional<Cluster> cluster;
  if (values.count("cluster")) {
    cluster = read_cluster(values["cluster"].as<std::string>(), run.precision);
  } else if (values.count("world")) {
    cluster = default_cluster(run.precision);
  }
  if (cluster) cluster->memory *= 1 - values["headroom"].as<double>();
  if (values.count("measure")) {
    cluster->flops = measure_gemm_peak(CpuStream(own_cores().count), working_type(run)).flops;
    cluster->name += ", products as measured here";
  }
  return cluster;
}

/// Returns warnings about the learning-rate schedules of a run from its first step, and about the memory of NCCL.
std::vector<std::string> doubts_of(const MeshPlan& plan, const std::optional<Cluster>& cluster) {
  std::vector<std::string> doubts =
      schedule_warnings_of_stages(plan.config, 0, schedule_of_stage(plan.config, 1).steps);
  const std::string nccl = cluster ? nccl_shortage(plan, cluster->memory, "a rank of " + cluster->name) : "";
  if (!nccl.empty()) doubts.push_back(nccl);
  return doubts;
}

std::string shown(const LoadedConfig& loaded, const MeshPlan& plan, std::span<const StagePlan> stages,
                  const std::optional<Cluster>& cluster, const std::optional<SearchResult>& search,
                  const std::optional<LoadProfile>& load, const po::variables_map& values) {
  if (loaded.print_config) {
    LoadedConfig planned = loaded;
    planned.config = plan.config;
    return print_config(planned);
  }
  const double tokens = tokens_of_run(plan.config, values);
  std::optional<LoadComparison> loads;
  if (load) loads = compare_loads(plan, cluster, *load);
  if (values.count("json")) {
    return json_report(plan, cluster, search ? &*search : nullptr, tokens, doubts_of(plan, cluster), stages,
                       loads ? &*loads : nullptr);
  }
  std::string text = model_report(plan.config) + (search ? search_report(*search, plan.world, *cluster) : "") +
                     mesh_report(plan, cluster, tokens, stages) + (loads ? load_report(*loads) : "");
  text += fmt::format("\ncheckpoints {}\n", saves_text(plan.config));
  constexpr double stated = 1e6;  // bytes
  if (const CheckpointList list = checkpoint_list(plan.config); list.saving_bytes >= stated) {
    text += fmt::format(
        "their list of up to {} tensors takes {} of memory on every rank while a run resumes, {} on rank 0 "
        "during a save\n",
        list.tensors, text_of_bytes(static_cast<std::int64_t>(list.resuming_bytes)),
        text_of_bytes(static_cast<std::int64_t>(list.saving_bytes)));
  }
  for (const std::string& doubt : doubts_of(plan, cluster)) text += "warning: " + doubt + '\n';
  return text;
}

/// Returns the load that --load names; nothing without it.
std::optional<LoadProfile> load_of_experts(const Config& config, const po::variables_map& values) {
  if (!values.count("load")) return std::nullopt;
  const std::string& text = values["load"].as<std::string>();
  require_usage(values.count("world") || config.parallel.expert > 1,
                "--load {}: set parallel.expert above 1, or search with --world N: one rank with all experts of a "
                "layer has the same work with any load",
                text);
  Config alone = without_mesh(config);
  resolve(alone, 1);
  return read_load_profile(text, alone);
}

}  // namespace

CommandHelp plan_help() {
  return describe_configured("lyceum plan --config FILE [options] [--section.key=value …]", plan_about, plan_options(),
                             "an INI file");
}

int plan_command(const MpiSession& session, const Arguments& arguments) {
  const ParsedOptions parsed = parse_options(plan_options(), arguments);
  const po::variables_map& values = parsed.values;
  const auto print_once = [&](const std::string& text) {
    if (session.rank() == 0) print(text);
    return 0;
  };
  if (parsed.help) return print_once(plan_help().text);
  const LoadedConfig loaded = read_config(parsed.rest);
  if (loaded.list_keys) return print_once(list_keys());
  const bool searches = values.count("world") > 0;
  const int world = searches ? values["world"].as<int>() : ranks_of(loaded.config, session, values);
  check_output(parsed);
  check(loaded, values, world);
  const OptimConfig& optim = loaded.config.optim;
  if (!optim.train_only.empty() || !optim.adamw_only.empty() || optim.lora_rank > 0) {  // bad patterns throw
    Config alone = without_mesh(loaded.config);
    resolve(alone, 1);
    if (!alone.optim.train_only.empty()) count_trained_values(alone);
    require_ruled_tensors(alone);
    alone.parallel.pipeline = loaded.config.parallel.pipeline;
    require_adaptable(alone);
  }
  const std::optional<LoadProfile> load = load_of_experts(loaded.config, values);
  const LoadProfile* const given_load = load ? &*load : nullptr;
  const std::optional<Cluster> cluster = rates(loaded.config.run, values);
  std::optional<SearchResult> search;
  MeshPlan plan;
  Config config = loaded.config;
  if (cluster && config.parallel.host_ranks == 0) config.parallel.host_ranks = cluster->node_ranks;
  if (searches) {
    search = search_meshes(config, world, *cluster, given_on_command_line(loaded), best_meshes, given_load);
    plan = search->best.front().plan;
  } else {
    require_none(contradictions(config, world));
    resolve(config, world);
    plan = plan_mesh(config, world, cluster, {}, given_load);
  }
  const std::vector<StagePlan> stages = plan_stages(plan, cluster, given_load);
  print_once(shown(loaded, plan, stages, cluster, search, load, values));
  if (loaded.print_config) return 0;
  if (values.count("svg") && session.rank() == 0) write_svg(plan, values["svg"].as<std::string>());
  if (!cluster) return 0;
  const std::string whose = "a rank of " + cluster->name;
  const std::string short_of = shortage(plan, cluster->memory, whose);
  require_usage(short_of.empty(), "{}", short_of);  // the table has been printed
  for (const StagePlan& stage : stages) {
    const std::string short_in_stage = shortage(stage.plan, cluster->memory, whose);
    require_usage(short_in_stage.empty(), "stage {}: {}", stage.stage, short_in_stage);
  }
  return 0;
}

}  // namespace lyceum
