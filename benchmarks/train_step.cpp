// Measures whole training steps: tokens/s; the model's FLOP/s relative to the peak of the device (stated by the vendor
// for a GPU; on a CPU the best 512³ GEMM of the same precision in the same run); the time of each phase and its lower
// bound; and memory. Every part of a step is included. Run it alone or under mpirun:
//   build/cpu/benchmarks/bench_train_step --config configs/deepseekmoe-small.ini [--section.key=value …]
//     --device cuda      short for --run.device=cuda
//     --tokens PREFIX    token files to read, written by lyceum tokenize
//                        (default: random tokens, distributed as words in a text)
//     --routing WHAT     real (the router's choices; default), even (each expert equally often), or both in sequence
//     --steps N          timed steps (default 5); up to three more are profiled
//     --peak-tflops N, --peak-gbs N   peaks of one rank's device, if unknown or to be overridden
//     --json OUT         also write the results to this file; a list with --routing both
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "step_bench.h"

using namespace lyceum;

namespace {

double positive(const std::string& name, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require_usage(error == std::errc() && end == text.data() + text.size() && value > 0,
                "{} {}: must be a number above 0", name, text);
  return value;
}

/// Removes the benchmark's own options from `words` and returns them; the remaining words belong to the configuration.
/// Throws a usage Error for a bad value.
StepBenchOptions take_options(std::vector<std::string>& words, std::string& routing) {
  StepBenchOptions options;
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i];
    const bool mine = name == "--steps" || name == "--json" || name == "--tokens" || name == "--peak-tflops" ||
                      name == "--peak-gbs" || name == "--device" || name == "--routing";
    if (!mine) {
      rest.push_back(name);
      continue;
    }
    require_usage(++i < words.size(), "{} needs a value", name);
    const std::string& value = words[i];
    if (name == "--steps") options.steps = static_cast<int>(positive(name, value));
    if (name == "--json") options.json = value;
    if (name == "--tokens") options.tokens = value;
    if (name == "--peak-tflops") options.peaks.flops = positive(name, value) * 1e12;
    if (name == "--peak-gbs") options.peaks.bytes = positive(name, value) * 1e9;
    if (name == "--routing") {
      require_usage(value == "real" || value == "even" || value == "both", "--routing {}: must be real, even or both",
                    value);
      routing = value;
    }
    if (name == "--device") rest.push_back("--run.device=" + value);
  }
  require_usage(options.steps >= 1, "--steps must be at least 1");
  words = std::move(rest);
  return options;
}

/// Unit of printed speeds: T on a GPU, G on a CPU.
struct Unit {
  double of;
  std::string name;
};
Unit unit(const StepBenchResult& result) { return result.device.selector.empty() ? Unit{1e9, "G"} : Unit{1e12, "T"}; }

std::string routing_of(const Config& config) {
  return config.moe.even_routing ? "even: every expert gets as many tokens" : "real: the router's choices";
}

void print_summary(const Config& config, const StepBenchResult& r) {
  const ModelCounts counts = count_model(config);
  const auto [per, prefix] = unit(r);
  fmt::print("device       {}{}\n", r.device.name, r.device.driver.empty() ? "" : ", driver " + r.device.driver);
  fmt::print("model        {:.1f}M parameters, {:.1f}M activated; {} x {} tokens, {}\n", counts.parameters / 1e6,
             counts.activated / 1e6, config.batch.global, config.batch.seq_len, name_of(config.run.precision));
  fmt::print("tokens       {}\n", r.tokens_from);
  fmt::print("routing      {}\n", routing_of(config));
  fmt::print("peak         {:8.1f} {}FLOP/s, {}; {:.1f} GB/s, {}\n", r.peaks.flops / per, prefix, r.flops_from,
             r.peaks.bytes / 1e9, r.bytes_from);
  fmt::print("best GEMM    {:8.1f} {}FLOP/s in this run: {:.1f} % of the peak\n", r.gemm / per, prefix,
             100 * r.gemm / r.peaks.flops);
  if (!r.gemms.empty()) fmt::print("GEMM         {}\n", choices_text(r.gemms));
  fmt::print("step         {:8.1f} ms  median; (max - min) / median {:.1f} %\n", r.seconds * 1e3, 100 * r.spread);
  fmt::print("speed        {:8.0f} tokens/s, {:.1f} {}FLOP/s of the model (causal attention counted half)\n",
             r.tokens / r.seconds, r.flops / r.seconds / per, prefix);
  fmt::print("MFU          {:8.3f} of the peak\n", r.flops / r.seconds / r.peaks.flops);
  fmt::print("memory       {:8.1f} MB held by the allocator at its peak, {:.1f} MB in use at its peak\n",
             r.memory.held_peak / 1e6, r.memory.total_peak / 1e6);
  fmt::print("planned      {:8.1f} MB in use at the peak: measured / planned {:.3f}\n", r.planned / 1e6,
             r.memory_to_plan());
  if (r.device.selector.empty()) {
    fmt::print("resident     {:8.1f} MB at the peak: {:+.1f} % against held\n", r.resident / 1e6,
               100 * (r.resident / static_cast<double>(r.memory.held_peak) - 1));
  } else {
    fmt::print("clocks       first step: {}\n             last step:  {}\n", r.clocks_first, r.clocks_last);
    fmt::print("             (SM clock, memory clock, power, its limit, degrees, reasons for lower clocks)\n");
  }
  fmt::print("loss         {:8.4f}, load imbalance {:.2f}\n\n", r.loss, r.imbalance);
  std::fflush(stdout);  // in a file, the results so far survive a time limit
}

/// Column `at best` is least_seconds(): the longer of the times that the phase's FLOPs and bytes take at the peaks.
void print_phases(const StepBenchResult& r) {
  const auto [per, prefix] = unit(r);
  fmt::print("{:<22} {:>9} {:>7} {:>9} {:>8} {:>9} {:>8}\n", "phase", "ms", "share", prefix + "FLOP/s", "GB/s",
             "at best", "reached");
  const auto number = [](double value, int width) {
    return value > 0 ? fmt::format("{:>{}.1f}", value, width) : fmt::format("{:>{}}", "", width);
  };
  for (const Phase& phase : r.phases) {
    if (phase.seconds == 0) continue;
    const double best = least_seconds(phase.work, r.rank_peaks());
    fmt::print("{:<22} {:>9.2f} {:>6.1f}% {} {} {} {}\n", phase.name, phase.seconds * 1e3,
               100 * phase.seconds / r.profiled, number(phase.work.flops / phase.seconds / per, 9),
               number(phase.work.bytes / phase.seconds / 1e9, 8), number(best * 1e3, 9),
               best > 0 ? fmt::format("{:>7.1f}%", 100 * best / phase.seconds) : "");
  }
  fmt::print("{:<22} {:>9.2f}          the phases cover {:.1f} % of it; {:+.1f} % against a step without profile\n\n",
             "sum: profiled step", r.profiled * 1e3, 100 * r.covered(), 100 * (r.profiled / r.mean - 1));
  fmt::print("{:<58} {:>9} {:>7} {:>6}\n", "operation and kernel", "ms", "share", "calls");
  double shown = 0, all = 0;
  for (const Kernel& kernel : r.kernels) {
    all += kernel.seconds;
    if (kernel.seconds < 0.002 * r.profiled) continue;
    shown += kernel.seconds;
    fmt::print("{:<58} {:>9.2f} {:>6.1f}% {:>6}\n", kernel.name, kernel.seconds * 1e3,
               100 * kernel.seconds / r.profiled, kernel.calls);
  }
  fmt::print("{:<58} {:>9.2f} {:>6.1f}%\n", "all smaller ones", (all - shown) * 1e3, 100 * (all - shown) / r.profiled);
}

std::string commit() {  // of the source tree, or of the bundle that contains this program
  if (const char* known = std::getenv("LYCEUM_COMMIT")) return known;
  return output_of("git -C '" LYCEUM_SOURCE_DIR "' describe --always --dirty --abbrev=12");
}

using Json = nlohmann::ordered_json;

Json json_of(const Config& config, const StepBenchResult& r) {
  Json phases = Json::array(), kernels = Json::array();
  for (const Phase& phase : r.phases) {
    phases.push_back({{"phase", phase.name},
                      {"ms", phase.seconds * 1e3},
                      {"flops", phase.work.flops},
                      {"bytes", phase.work.bytes},
                      {"ms_at_best", least_seconds(phase.work, r.rank_peaks()) * 1e3}});
  }
  for (const Kernel& kernel : r.kernels) kernels.push_back({{"kernel", kernel.name}, {"ms", kernel.seconds * 1e3}});
  return {{"date", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
          {"commit", commit()},
          {"device", r.device.name},
          {"driver", r.device.driver},
          {"ranks", r.ranks},
          {"precision", name_of(config.run.precision)},
          {"sequences", config.batch.global},
          {"seq_len", config.batch.seq_len},
          {"parameters", count_model(config).parameters},
          {"tokens_from", r.tokens_from},
          {"routing", config.moe.even_routing ? "even" : "real"},
          {"peak_gflops", r.peaks.flops / 1e9},
          {"peak_from", r.flops_from},
          {"peak_gbytes", r.peaks.bytes / 1e9},
          {"gemm_gflops", r.gemm / 1e9},
          {"step_ms", r.seconds * 1e3},
          {"step_spread", r.spread},
          {"tokens_per_second", r.tokens / r.seconds},
          {"ratio_to_peak", r.flops / r.seconds / r.peaks.flops},
          {"used_peak_bytes", r.memory.total_peak},
          {"planned_peak_bytes", r.planned},
          {"memory_to_plan", r.memory_to_plan()},
          {"held_peak_bytes", r.memory.held_peak},
          {"resident_peak_bytes", r.resident},
          {"loss", r.loss},
          {"load_imbalance", r.imbalance},
          {"gemm_choice", r.gemms.empty() ? "heuristic" : "timed"},
          {"gemms", Json::parse(gemm_file_text(r.gemms)).at("choices")},
          {"clocks_first_step", r.clocks_first},
          {"clocks_last_step", r.clocks_last},
          {"profiled_step_ms", r.profiled * 1e3},
          {"covered", r.covered()},
          {"phases", phases},
          {"kernels", kernels}};
}

int run(const MpiSession& session, std::vector<std::string> arguments) {
  std::string routing = "real";
  const StepBenchOptions options = take_options(arguments, routing);
  // Default; the caller's arguments follow and override it.
  arguments.insert(arguments.begin(), "--run.gemm_choice=timed");
  LoadedConfig loaded = load_config(arguments);
  require_usage(loaded.rest.empty(), "no such option: {}", loaded.rest.empty() ? "" : loaded.rest[0]);
  require_none(problems(loaded.config, session.size()));
  resolve(loaded.config, session.size());
  Json results = Json::array();
  for (const bool even : {false, true}) {
    if (routing == (even ? "real" : "even")) continue;
    loaded.config.moe.even_routing = even;
    const StepBenchResult result = measure_steps(loaded.config, session, options);
    if (session.rank() != 0) continue;
    print_summary(loaded.config, result);
    print_phases(result);
    results.push_back(json_of(loaded.config, result));
  }
  if (session.rank() != 0 || options.json.empty()) return 0;
  std::ofstream file(options.json);
  file << (results.size() == 1 ? results[0] : results).dump(1) << '\n';
  require(file.flush().good(), "{}: cannot be written", options.json);
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
