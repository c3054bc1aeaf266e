// Measures cost and savings of the stages of ZeRO, and the gain from overlapping their transfers with computation:
//   mpirun -n 2 bench_zero --config configs/quickstart.ini [--section.key=value …] [--rounds 5] [--json OUT]
// Every round runs one step of every case, so that other load on the machine affects all of them equally. A ratio is
// the median over rounds of the ratio of two times in the same round. "awaited" means that each transfer is awaited as
// soon as it has begun.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "config/binding.h"
#include "config/check.h"
#include "core/allocator.h"
#include "core/clock.h"
#include "io/data/tokens/token_formats.h"
#include "parallel/data/copies.h"
#include "train/step/step.h"
#include "zipf_tokens.h"

using namespace lyceum;

namespace {

/// A model in training with its own memory: one stage of ZeRO, with or without overlap.
class Case {
 public:
  Case(Config config, const MpiSession& session, int stage, bool overlap)
      : stage_(stage), overlap_(overlap), config_(std::move(config)) {
    config_.parallel.zero = stage;
    setup_ = set_up(config_, session);
    Zero::Options options = zero_options(config_, setup_->mesh);
    options.overlap = overlap;
    model_ = std::make_unique<StagedModel>(config_, setup_->stream, setup_->mesh, working_type(config_.run), true);
    zero_ = std::make_unique<Zero>(model_->units(), setup_->mesh, setup_->stream, options);
    zero_->initialize(config_.run.seed);
    optimizer_ = std::make_unique<Optimizer>(config_.optim, setup_->mesh, setup_->stream, zero_->shares());
    optimizer_->adopt_weights();
    step_ = std::make_unique<TrainStep>(config_, *setup_, *model_, *zero_, *optimizer_);
  }

  /// Runs a step and returns the seconds that it takes on the slowest rank, including the return of its values.
  /// Collective.
  double run(const TokenLoader& loader, std::int64_t step) {
    const ProcessGroup& world = setup_->mesh.world;
    world.barrier();
    const auto start = Clock::now();
    const StepResult done = step_->run(loader, step, step * config_.batch.global, 1e-4);
    zero_->await_values();
    std::array<double, 1> seconds{seconds_since(start)};
    world.all_reduce(std::span(seconds), Reduction::max);
    memory_ = done.memory;
    loss_ = done.loss;
    return seconds[0];
  }

  std::string name() const { return fmt::format("stage {} {}", stage_, overlap_ ? "overlapped" : "awaited"); }
  const MemoryUse& memory() const { return memory_; }
  double loss() const { return loss_; }
  /// Returns the mean number of bytes per step that a rank passes to transfers.
  double traffic(int steps) const {
    std::uint64_t bytes = 0;
    for (const ParameterUnit::Group group : parameter_groups) {
      const ProcessGroup::Traffic traffic = zero_->traffic(group);
      bytes += static_cast<std::uint64_t>(traffic.reduce_scatter + traffic.all_gather);
    }
    return static_cast<double>(bytes) / steps;
  }

 private:
  int stage_;
  bool overlap_;
  Config config_;
  std::unique_ptr<RunSetup> setup_;
  std::unique_ptr<StagedModel> model_;
  std::unique_ptr<Zero> zero_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<TrainStep> step_;
  MemoryUse memory_;
  double loss_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(ratios);
}

int run(const MpiSession& session, const std::vector<std::string>& arguments) {
  LoadedConfig loaded = load_config(arguments);
  int rounds = 5;
  std::string json;
  for (std::size_t i = 0; i + 1 < loaded.rest.size(); i += 2) {
    if (loaded.rest[i] == "--rounds") rounds = std::stoi(loaded.rest[i + 1]);
    if (loaded.rest[i] == "--json") json = loaded.rest[i + 1];
  }
  Config& config = loaded.config;
  require_none(problems(config, session.size()));
  resolve(config, session.size());
  const auto directory = std::filesystem::temp_directory_path() / fmt::format("lyceum-bench-{}", session.rank());
  std::filesystem::create_directories(directory);
  const std::int64_t tokens = 4 * config.batch.global * config.batch.seq_len;
  const TokenLoader loader(open_tokens(write_tokens(directory, config.model.vocab, tokens + 1)),
                           SampleOrder(SampleOrder::Kind::sequential, 1, 0, 4 * config.batch.global),
                           config.batch.seq_len);
  std::filesystem::remove_all(directory);  // the file remains mapped

  std::vector<std::unique_ptr<Case>> cases;
  for (const auto& [stage, overlap] :
       std::vector<std::pair<int, bool>>{{0, true}, {0, false}, {1, true}, {2, true}, {3, true}, {3, false}}) {
    cases.push_back(std::make_unique<Case>(config, session, stage, overlap));
  }
  std::vector<std::vector<double>> seconds(cases.size());
  for (int round = -1; round < rounds; ++round) {  // round -1 is the warm-up
    for (std::size_t c = 0; c < cases.size(); ++c) {
      const double time = cases[c]->run(loader, round + 1);
      if (round >= 0) seconds[c].push_back(time);
    }
  }
  if (session.rank() != 0) return 0;

  const auto mb = [](const Case& one, MemoryKind kind) {
    return static_cast<double>(one.memory().peak[static_cast<std::size_t>(kind)]) / 1e6;
  };
  fmt::print("{:<20} {:>8} {:>7} {:>10} {:>8} {:>9} {:>9} {:>10}\n", "", "ms", "ratio", "MB sent", "weights",
             "gradients", "optimizer", "loss");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const Case& one = *cases[c];
    const double ms = median(seconds[c]) * 1e3, ratio = median_ratio(seconds[c], seconds[0]);
    const double sent = one.traffic(rounds + 1) / 1e6;
    fmt::print("{:<20} {:>8.1f} {:>7.3f} {:>10.2f} {:>8.2f} {:>9.2f} {:>9.2f} {:>10.6f}\n", one.name(), ms, ratio, sent,
               mb(one, MemoryKind::weights), mb(one, MemoryKind::gradients), mb(one, MemoryKind::optimizer),
               one.loss());
    rows.push_back({{"case", one.name()}, {"ms", ms}, {"ratio_to_stage_0", ratio}, {"mb_sent", sent}});
  }
  fmt::print("\nratio: to the first line; MB: of rank 0, sent in a step and at the peak of each kind\n");
  if (!json.empty()) std::ofstream(json) << rows.dump(1) << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const MpiSession session;
  try {
    return run(session, {argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_zero: {}\n", error.what());
    session.abort(ExitCode::failed);
  }
}
