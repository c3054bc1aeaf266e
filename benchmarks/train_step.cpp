// A whole training step: tokens/s, model FLOP/s over the best 512³ GEMM of the same precision in the same run, where
// the rest of the time goes, and memory. Run it alone or under mpirun:
//   build/cpu/benchmarks/bench_train_step --config configs/deepseekmoe-small.ini [--steps 5] [--json OUT]
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "best_rate.h"
#include "io/config_binding.h"
#include "io/config_check.h"
#include "model/counts.h"
#include "train/step.h"
#include "zipf_tokens.h"

using namespace lyceum;

namespace {

struct Phase {
  std::string name;
  double seconds;
  std::int64_t calls;
};

/// The profile's entries, slowest first; those under one operation and direction together, kernels told apart.
std::vector<Phase> phases(Profile& profile, double total, int steps) {
  std::map<std::string, Profile::Entry> merged;
  double seen = 0;
  for (const auto& [path, entry] : profile.entries()) {
    const std::size_t last = path.rfind('/');
    const std::size_t before = last == std::string::npos ? std::string::npos : path.rfind('/', last - 1);
    Profile::Entry& sum = merged[before == std::string::npos ? path : path.substr(before + 1)];
    sum.seconds += entry.seconds;
    sum.calls += entry.calls;
    seen += entry.seconds;
  }
  std::vector<Phase> all;
  for (const auto& [name, entry] : merged) all.push_back({name, entry.seconds / steps, entry.calls / steps});
  all.push_back({"(between operations)", total - seen / steps, 0});
  std::sort(all.begin(), all.end(), [](const Phase& a, const Phase& b) { return a.seconds > b.seconds; });
  return all;
}

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

struct Result {
  double peak, seconds, spread, flops, tokens;
  std::vector<Phase> phases;
  MemoryUse memory;
  double resident, loss, imbalance;
};

Result measure_step(const Config& config, const MpiSession& session, int steps) {
  const auto setup = set_up(config, session);
  const auto directory = std::filesystem::temp_directory_path() / fmt::format("lyceum-bench-{}", session.rank());
  std::filesystem::create_directories(directory);
  const std::int64_t batch_tokens = config.batch.global * config.batch.seq_len;
  const std::string prefix = write_tokens(directory, config.model.vocab, 4 * batch_tokens + 1);
  const TokenLoader loader(std::make_shared<TokenFile>(prefix),
                           SampleOrder(SampleOrder::Kind::sequential, 1, 0, 4 * config.batch.global),
                           config.batch.seq_len);
  StagedModel model(config, setup->stream, setup->mesh, working_type(config.run), true);
  Zero zero(model.units(), setup->mesh, setup->stream, zero_options(config, setup->mesh));
  zero.initialize(config.run.seed);
  Optimizer optimizer(config.optim, setup->stream, zero.shares());
  optimizer.adopt_weights();
  TrainStep step(config, *setup, model, zero, optimizer);

  Result result{};
  const auto profile = std::make_shared<Profile>();
  std::vector<double> seconds;
  const auto best_rate = [&] {
    const bool bf16 = working_type(config.run) == DType::bf16;
    return best_gemm_rate(std::get<CpuStream>(setup->stream).threads(),
                          bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32);
  };
  std::array<double, 1> peak{best_rate()};
  for (int s = 0; s < steps + 2; ++s) {
    // Two steps to compile primitives and fill the pool; the others count, the profile with them.
    if (s == 2) std::get<CpuStream>(setup->stream).set_profile(profile);
    const auto start = std::chrono::steady_clock::now();
    const StepResult done = step.run(loader, s * config.batch.global, 1e-4);
    if (s >= 2) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    result.loss = done.loss;
    result.imbalance = done.load_imbalance;
  }
  std::get<CpuStream>(setup->stream).set_profile(nullptr);
  peak[0] = std::max(peak[0], best_rate());
  setup->mesh.world.all_reduce(std::span(peak));
  std::filesystem::remove_all(directory);

  double total = 0;
  for (const double s : seconds) total += s / steps;
  result.phases = phases(*profile, total, steps);
  std::sort(seconds.begin(), seconds.end());
  result.peak = peak[0];
  result.seconds = seconds[seconds.size() / 2];
  result.spread = (seconds.back() - seconds.front()) / result.seconds;
  result.flops = count_model(config).causal_flops_per_sequence * static_cast<double>(config.batch.global);
  result.tokens = static_cast<double>(batch_tokens);
  result.memory = memory_of(setup->stream).use();
  result.resident = peak_resident_bytes();
  return result;
}

void print(const Config& config, const Result& result) {
  const ModelCounts counts = count_model(config);
  fmt::print("model        {:.1f}M parameters, {:.1f}M activated; {} x {} tokens, {}\n", counts.parameters / 1e6,
             counts.activated / 1e6, config.batch.global, config.batch.seq_len, config.run.precision);
  fmt::print("peak         {:8.1f} GFLOP/s  best oneDNN 512^3 GEMM in this run, packed weights, all ranks\n",
             result.peak / 1e9);
  fmt::print("step         {:8.1f} ms  median; (max - min) / median {:.0f} %\n", result.seconds * 1e3,
             100 * result.spread);
  fmt::print("speed        {:8.0f} tokens/s, {:.1f} GFLOP/s of the model (causal attention at half)\n",
             result.tokens / result.seconds, result.flops / result.seconds / 1e9);
  fmt::print("ratio        {:8.3f} of the peak\n", result.flops / result.seconds / result.peak);
  fmt::print("memory       {:8.1f} MB held by the allocator at its peak, {:.1f} MB in use at its peak\n",
             result.memory.held_peak / 1e6, result.memory.total_peak / 1e6);
  fmt::print("resident     {:8.1f} MB at the peak: {:+.1f} % against held\n", result.resident / 1e6,
             100 * (result.resident / static_cast<double>(result.memory.held_peak) - 1));
  fmt::print("loss         {:8.4f}, load imbalance {:.2f}\n\n", result.loss, result.imbalance);
  double total = 0, shown = 0;
  for (const Phase& phase : result.phases) total += phase.seconds;
  fmt::print("{:<58} {:>9} {:>7} {:>6}\n", "phase", "ms", "share", "calls");
  for (const Phase& phase : result.phases) {
    if (phase.seconds < 0.002 * total) continue;
    shown += phase.seconds;
    fmt::print("{:<58} {:>9.1f} {:>6.1f}% {:>6}\n", phase.name, phase.seconds * 1e3, 100 * phase.seconds / total,
               phase.calls);
  }
  fmt::print("{:<58} {:>9.1f} {:>6.1f}%\n", "all smaller ones", (total - shown) * 1e3, 100 * (total - shown) / total);
  fmt::print("{:<58} {:>9.1f}\n", "sum: mean step", total * 1e3);
}

void write_json(const std::string& path, const Config& config, const Result& result) {
  nlohmann::ordered_json phases = nlohmann::ordered_json::array();
  for (const Phase& phase : result.phases) phases.push_back({{"phase", phase.name}, {"ms", phase.seconds * 1e3}});
  std::ofstream(path) << nlohmann::ordered_json{{"precision", config.run.precision},
                                                {"peak_gflops", result.peak / 1e9},
                                                {"step_ms", result.seconds * 1e3},
                                                {"tokens_per_second", result.tokens / result.seconds},
                                                {"ratio_to_peak", result.flops / result.seconds / result.peak},
                                                {"held_peak_bytes", result.memory.held_peak},
                                                {"resident_peak_bytes", result.resident},
                                                {"phases", phases}}
                             .dump(1)
                      << '\n';
}

int run(const MpiSession& session, const std::vector<std::string>& arguments) {
  LoadedConfig loaded = load_config(arguments);
  int steps = 5;
  std::string json;
  for (std::size_t i = 0; i + 1 < loaded.rest.size(); i += 2) {
    if (loaded.rest[i] == "--steps") steps = std::stoi(loaded.rest[i + 1]);
    if (loaded.rest[i] == "--json") json = loaded.rest[i + 1];
  }
  require_none(problems(loaded.config, session.size()));
  resolve(loaded.config, session.size());
  const Result result = measure_step(loaded.config, session, steps);
  if (session.rank() != 0) return 0;
  print(loaded.config, result);
  if (!json.empty()) write_json(json, loaded.config, result);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const MpiSession session;
  try {
    return run(session, {argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_train_step: {}\n", error.what());
    session.abort(ExitCode::failed);
  }
}
