#include "train/run/run_peak.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "io/text/table.h"
#include "train/run/device_peak.h"
#include "train/run/machine_peak.h"
#include "train/run/peak_cache.h"
#include "train/setup/machine.h"

namespace lyceum {

namespace {

std::string date_of_today() { return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr))); }

/// Returns the sum of the specified peaks of all ranks' GPUs; a GPU that ranks share counts once. Returns nothing if a
/// rank has no GPU or one of an unknown model.
std::optional<RunPeak> stated_peak(const RunConfig& run, const std::vector<RankResources>& resources) {
  RunPeak peak;
  for (const RankResources& rank_resources : resources) {
    const StatedPeaks stated = rank_resources.device == "cpu" ? StatedPeaks{} : stated_peaks(rank_resources.processor);
    const double flops = run.precision == Precision::bf16 ? stated.bf16_flops : stated.f32_flops;
    if (flops == 0) return {};
    const auto sharers = std::ranges::count_if(resources, [&](const RankResources& other) {
      return other.host == rank_resources.host && other.device == rank_resources.device;
    });
    peak.flops += flops / static_cast<double>(sharers);
  }
  peak.source = fmt::format("as specified for {} in {}", resources.front().processor, name_of(run.precision));
  return peak;
}

/// Returns the key of a measured peak in PeakCache: "Intel(R) Xeon(R), 2 cores, f32".
std::string name_of_peak(const RunConfig& run, const RankResources& own, int workers) {
  return fmt::format("{}, {}, {}", own.processor, count_text(workers, own.device == "cpu" ? "core" : "GPU"),
                     name_of(run.precision));
}

/// Returns the processor time that all threads of this process have used, in seconds.
double core_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Returns the time in seconds by a clock that all processes of this machine share.
double shared_clock() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

/// Returns a function that multiplies matrices for a tenth of a second per call. It allocates them in the first call.
MeasureWindow gemm_windows(const Stream& stream, DType type) {
  return [stream, type, load = std::shared_ptr<GemmLoad>()](int threads) mutable {
    const bool on_gpu = asynchronous(stream);
    if (!load) {
      const Stream workers = on_gpu ? stream : Stream(CpuStream(threads));
      load = std::make_shared<GemmLoad>(workers, type, peak_gemm_size(workers, type));
    }
    PeakWindow window{.begin = shared_clock()};
    const double before = core_seconds();
    while ((window.end = shared_clock()) < window.begin + 0.1) window.flops += load->multiply();
    window.core_seconds = on_gpu ? -1 : core_seconds() - before;
    return window;
  };
}

}  // namespace

RunPeak peak_of_run(const RunConfig& run, const RunSetup& setup, bool remeasure) {
  if (const auto stated = stated_peak(run, setup.resources)) return *stated;
  const ProcessGroup& world = setup.mesh.world;
  const std::vector<RankResources>& resources = setup.resources;
  const auto rank = static_cast<std::size_t>(world.rank());
  const RankResources& own = resources[rank];
  const bool is_first_on_host =
      std::ranges::find(resources, own.host, &RankResources::host) == resources.begin() + world.rank();
  const double quota = core_quota();
  std::vector<std::int64_t> quotas(resources.size());
  world.all_gather(std::array{std::bit_cast<std::int64_t>(quota)}, std::span(quotas));
  std::vector<double> limits;
  for (const std::int64_t bits : quotas) limits.push_back(std::bit_cast<double>(bits));
  const MeasuringShares shares = measuring_shares(resources, limits);

  const PeakCache cache(own.host);
  const std::string what = name_of_peak(run, own, shares.of_machine[rank]);
  const std::optional<PeakCache::Entry> known = is_first_on_host && !remeasure ? cache.find(what) : std::nullopt;
  std::vector<std::int64_t> missing(resources.size());  // [ranks]: 1 for the first rank of a host without a value
  world.all_gather(std::array{std::int64_t{is_first_on_host && !known}}, std::span(missing));
  const bool measures = std::ranges::count(missing, 0) < std::ssize(missing);
  PeakCache::Entry entry = known.value_or(PeakCache::Entry{});
  bool steady = true;
  if (measures) {
    const std::vector<MachinePeak> peaks =
        measure_machines(world, resources, shares, gemm_windows(setup.stream, working_type(run)));
    for (std::size_t r = 0; r < peaks.size(); ++r) steady = steady && (missing[r] == 0 || peaks[r].steady());
    if (!known) entry = {.flops = peaks[rank].flops(), .date = date_of_today()};
    if (missing[rank] != 0 && peaks[rank].steady()) cache.keep(what, entry);
  }
  std::array<double, 1> sum{is_first_on_host ? entry.flops : 0};
  world.all_reduce(std::span(sum));
  if (!measures) {
    return {.flops = sum[0], .source = fmt::format("measured on {} (--remeasure repeats this)", entry.date)};
  }
  return {.flops = sum[0],
          .source = steady ? "measured now" : "measured now, but unsteady and not stored (is something else running?)"};
}

}  // namespace lyceum
