#include "step_bench.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>

#include "best_rate.h"
#include "core/clock.h"
#include "core/copy.h"
#include "core/profile.h"
#include "io/data/tokens/token_formats.h"
#include "train/run/device_peak.h"
#include "train/step/step.h"
#include "zipf_tokens.h"

namespace lyceum {

namespace {

void set_profile(const Stream& stream, const std::shared_ptr<Profile>& profile) {
  std::visit(
      [&](const auto& device) {
        if constexpr (requires { device.set_profile(profile); }) device.set_profile(profile);
      },
      stream);
}

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

/// Merges the profile's entries that have the same operation, direction and kernel, and sorts them by time, longest
/// first. Seconds and calls are per step.
std::vector<Kernel> by_kernel(const std::map<std::string, Profile::Entry>& entries, int steps) {
  std::map<std::string, Profile::Entry> merged;
  for (const auto& [path, entry] : entries) {
    const std::size_t last = path.rfind('/');
    const std::size_t before = last == std::string::npos ? std::string::npos : path.rfind('/', last - 1);
    Profile::Entry& sum = merged[before == std::string::npos ? path : path.substr(before + 1)];
    sum.seconds += entry.seconds;
    sum.calls += entry.calls;
  }
  std::vector<Kernel> all;
  for (const auto& [name, entry] : merged) all.push_back({name, entry.seconds / steps, entry.calls / steps});
  std::sort(all.begin(), all.end(), [](const Kernel& a, const Kernel& b) { return a.seconds > b.seconds; });
  return all;
}

/// One rank's model in training, with its data.
class Training {
 public:
  Training(const Config& config, const MpiSession& session, const std::string& tokens)
      : config_(config),
        setup_(set_up(config, session)),
        gemms_(config.run, *setup_, ""),
        model_(config, setup_->stream, setup_->mesh, working_type(config.run), true),
        zero_(model_.units(), setup_->mesh, setup_->stream, zero_options(config, setup_->mesh)) {
    zero_.initialize(config.run.seed);
    optimizer_.emplace(config.optim, setup_->mesh, setup_->stream, zero_.shares(),
                       OptimizerOptions{.watched = config.run.audit_every > 0, .seed = config.run.seed});
    optimizer_->adopt_weights();
    step_.emplace(config, *setup_, model_, zero_, *optimizer_);
    std::string prefix = tokens;
    if (prefix.empty()) {
      made_ = std::filesystem::temp_directory_path() / fmt::format("lyceum-bench-{}-{}", getpid(), session.rank());
      std::filesystem::create_directories(made_);
      prefix = write_tokens(made_, config.model.vocab, 4 * config.batch.global * config.batch.seq_len + 1);
    }
    auto file = open_tokens(prefix);
    const std::int64_t samples = samples_in(file->tokens(), config.batch.seq_len);
    loader_.emplace(std::move(file), SampleOrder(SampleOrder::Kind::sequential, 1, 0, samples), config.batch.seq_len);
  }
  ~Training() {
    std::error_code ignored;
    if (!made_.empty()) std::filesystem::remove_all(made_, ignored);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  PinnedGemms& gemms() { return gemms_; }
  const Stream& stream() const { return setup_->stream; }
  const Mesh& mesh() const { return setup_->mesh; }

  /// Runs the next step and returns its seconds, from reading tokens to updated weights.
  double step(StepBenchResult& result) {
    const auto start = Clock::now();
    const StepResult done = step_->run(*loader_, steps_, steps_ * config_.batch.global, 1e-4);
    ++steps_;
    copy_to_host(stream(), nullptr, nullptr, 0);  // waits for the device
    const double seconds = seconds_since(start);
    require(!done.skipped, "a step made no update: {}", done.culprit);
    result.loss = done.loss;
    result.imbalance = done.load_imbalance;
    return seconds;
  }

 private:
  const Config& config_;
  std::unique_ptr<RunSetup> setup_;
  PinnedGemms gemms_;
  StagedModel model_;
  Zero zero_;
  std::optional<Optimizer> optimizer_;
  std::optional<TrainStep> step_;
  std::optional<TokenLoader> loader_;
  std::filesystem::path made_;
  std::int64_t steps_ = 0;
};

double best_gemm(const Stream& stream, DType type) {
  const auto* cpu = std::get_if<CpuStream>(&stream);
  if (!cpu) return measure_gemm_peak(stream, type).flops;
  return best_gemm_rate(cpu->threads(),
                        type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32);
}

/// Sets the peaks of all ranks together and their origin: the value given by the caller, else the vendor's value for
/// the device, else one measured in this run. Collective.
void choose_peaks(const Peaks& given, const Training& training, bool bf16, StepBenchResult& result) {
  Peaks own = given;
  result.flops_from = result.bytes_from = "as given";
  if (own.flops == 0 && bf16) {
    own.flops = result.device.peaks.flops;
    result.flops_from = "as the vendor specifies for dense bf16";
  }
  if (own.bytes == 0) {
    own.bytes = result.device.peaks.bytes;
    result.bytes_from = "as the vendor specifies";
  }
  const auto* cpu = std::get_if<CpuStream>(&training.stream());
  if (own.bytes == 0 && cpu) {
    own.bytes = host_bandwidth(cpu->threads());
    result.bytes_from = "a triad in this run";
  }
  std::array<double, 2> sums{own.flops, own.bytes};
  training.mesh().world.all_reduce(std::span(sums));
  result.peaks = {sums[0], sums[1]};
  if (result.peaks.flops == 0) {
    result.peaks.flops = result.gemm;
    result.flops_from = cpu ? "oneDNN's best 512^3 GEMM in this run, packed weights" : "the best GEMM in this run";
  }
  if (result.peaks.bytes == 0) result.bytes_from = "unknown: set --peak-gbs";
}

}  // namespace

double StepBenchResult::covered() const {
  double said = 0;
  for (const Phase& phase : phases) said += phase.name == "between operations" ? 0 : phase.seconds;
  return said / profiled;
}

double least_seconds(const Work& work, const Peaks& peaks) {
  return std::max(work.flops / peaks.flops, peaks.bytes > 0 ? work.bytes / peaks.bytes : 0);
}

StepBenchResult measure_steps(const Config& config, const MpiSession& session, const StepBenchOptions& options) {
  StepBenchResult result;
  result.ranks = session.size();
  Training training(config, session, options.tokens);
  result.tokens_from = options.tokens.empty() ? "random, distributed as words in a text" : "of " + options.tokens;
  result.device = describe_device(training.stream());
  const DType type = working_type(config.run);
  std::array<double, 1> gemm{best_gemm(training.stream(), type)};

  // The first step compiles primitives, chooses algorithms and fills the memory pool.
  training.step(result);
  training.gemms().agree();
  memory_of(training.stream()).trim();
  memory_of(training.stream()).reset_peaks();
  training.step(result);
  result.gemms = training.gemms().pins();
  std::vector<double> seconds;
  std::future<std::string> first, last;
  for (int s = 0; s < options.steps; ++s) {
    // Only on rank 0 and concurrently with the step: nvidia-smi takes about as long as a step.
    if (session.rank() == 0 && s == 0) first = sample_clocks(result.device);
    if (session.rank() == 0 && s == options.steps - 1) last = sample_clocks(result.device);
    seconds.push_back(training.step(result));
  }
  if (first.valid()) result.clocks_first = first.get();
  if (last.valid()) result.clocks_last = last.get();
  result.memory = memory_of(training.stream()).use();
  result.planned = plan_rank(plan_input(config, session.size()), session.rank()).memory.total();
  result.resident = peak_resident_bytes();

  const auto profile = std::make_shared<Profile>();
  const int profiled = std::min(options.steps, 3);
  set_profile(training.stream(), profile);
  for (int s = 0; s < profiled; ++s) result.profiled += training.step(result) / profiled;
  result.phases = phases_of_step(config, session.size());
  add_times(result.phases, profile->entries(), profiled, result.profiled);
  result.kernels = by_kernel(profile->entries(), profiled);
  set_profile(training.stream(), nullptr);

  gemm[0] = std::max(gemm[0], best_gemm(training.stream(), type));
  training.mesh().world.all_reduce(std::span(gemm));
  result.gemm = gemm[0];
  choose_peaks(options.peaks, training, type == DType::bf16, result);
  for (const double s : seconds) result.mean += s / options.steps;
  std::sort(seconds.begin(), seconds.end());
  result.seconds = seconds[seconds.size() / 2];
  result.spread = (seconds.back() - seconds.front()) / result.seconds;
  result.flops = count_model(config).causal_flops_per_sequence * static_cast<double>(config.batch.global);
  result.tokens = static_cast<double>(config.batch.global * config.batch.seq_len);
  return result;
}

}  // namespace lyceum
