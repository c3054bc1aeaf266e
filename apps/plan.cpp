#include <fmt/format.h>

#include <iostream>
#include <numeric>

#include "apps/options.h"
#include "apps/run_config.h"
#include "core/error.h"
#include "io/atomic_file.h"
#include "io/config_check.h"
#include "io/timeline_svg.h"
#include "plan/report.h"
#include "train/machine.h"
#include "train/peak.h"
#include "train/run_setup.h"

namespace lyceum {

namespace po = boost::program_options;

namespace {

constexpr const char* usage =
    "usage: lyceum plan --config FILE [options] [--section.key=value …]\n\n"
    "What a model and a mesh cost, before anything runs: parameters, FLOPs, memory of a rank, bytes on every group,\n"
    "the pipeline's timeline, and with rates the time of a step. --world finds the best mesh; keys on the command "
    "line\n"
    "stay as they are given. Needs no data, no ranks, no memory.";

/// Ranks of the mesh as it is configured: those that --ranks or mpirun say, or as few as it can have.
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

Config resolved(const LoadedConfig& loaded, int world) {
  std::vector<std::string> wrong = loaded.mistakes;
  for (std::string& problem : contradictions(loaded.config, world)) wrong.push_back(std::move(problem));
  require_none(wrong);
  Config config = loaded.config;
  resolve(config, world);
  return config;
}

/// Micro-batches of a drawing: more are too narrow to read.
constexpr int most_drawn = 16;

void write_svg(const MeshPlan& plan, const std::string& file) {
  const bool timed = plan.time.has_value();
  std::string title = plan.text();
  Timeline timeline = drawn_timeline(plan, most_drawn);
  if (timeline.shape.microbatches < plan.timeline.shape.microbatches) {
    title += fmt::format(" ({} of {} micro-batches)", timeline.shape.microbatches, plan.timeline.shape.microbatches);
  }
  for (auto& rank : timeline.ranks) {
    for (TimedAction& action : rank) {
      action.start *= timed ? 1e3 : 1;
      action.end *= timed ? 1e3 : 1;
    }
  }
  replace_file(file, timeline_svg(timeline, title, timed ? "ms" : ""));
}

}  // namespace

int plan_command(const MpiSession& session, const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("world", po::value<int>(), "find the best mesh of so many ranks")(
      "ranks", po::value<int>(), "plan the configured mesh on so many ranks")(
      "cluster", po::value<std::string>(),
      "rates and memory, see configs/clusters/; without it those of 8 H100 a node")(
      "measure", "take the rate of products from this machine, all its cores as one rank")(
      "svg", po::value<std::string>(), "draw the pipeline's timeline into a file")("json", "print JSON");
  const ParsedOptions parsed = parse_options(options, arguments, usage);
  const auto tell = [&](const std::string& text) {
    if (session.rank() == 0) std::cout << text << std::flush;
  };
  if (parsed.help) {
    tell(parsed.help_text);
    return 0;
  }
  const LoadedConfig loaded = read_config(parsed.rest);
  if (loaded.list_keys) {
    tell(list_keys());
    return 0;
  }
  require_usage(!parsed.values.count("world") || !parsed.values.count("ranks"),
                "--world finds a mesh, --ranks plans the one that is configured: give one of them");
  for (const char* option : {"world", "ranks"}) {
    require_usage(!parsed.values.count(option) || parsed.values[option].as<int>() >= 1, "--{} = {}: at least one rank",
                  option, parsed.values.count(option) ? parsed.values[option].as<int>() : 0);
  }
  require_none(loaded.mistakes);
  std::optional<Cluster> cluster;
  if (parsed.values.count("cluster")) {
    cluster = read_cluster(parsed.values["cluster"].as<std::string>(), loaded.config.run.precision);
  } else if (parsed.values.count("world")) {
    cluster = default_cluster(loaded.config.run.precision);
  }
  if (parsed.values.count("measure")) {
    require_usage(cluster.has_value(),
                  "--measure needs --cluster FILE or --world N: it replaces their rate of products");
    cluster->flops = measure_gemm_peak(CpuStream(own_cores().count), working_type(loaded.config.run));
    cluster->name += ", products as measured here";
  }

  std::optional<SearchResult> search;
  MeshPlan plan;
  if (parsed.values.count("world")) {
    const int world = parsed.values["world"].as<int>();
    search = search_meshes(loaded.config, world, *cluster, given_on_command_line(loaded));
    plan = search->best.front().plan;
  } else {
    const int world = ranks_of(loaded.config, session, parsed.values);
    plan = plan_mesh(resolved(loaded, world), world, cluster);
  }
  if (loaded.print_config) {
    LoadedConfig shown = loaded;
    shown.config = plan.config;
    tell(print_config(shown));
    return 0;
  }
  if (parsed.values.count("json")) {
    tell(json_report(plan, cluster, search ? &*search : nullptr));
  } else {
    tell(model_report(plan.config));
    if (search) tell(search_report(*search, plan.world, *cluster));
    tell(mesh_report(plan, cluster));
  }
  if (parsed.values.count("svg") && session.rank() == 0) write_svg(plan, parsed.values["svg"].as<std::string>());
  if (cluster) require_fits(plan, cluster->memory, "a rank of " + cluster->name);
  return 0;
}

}  // namespace lyceum
