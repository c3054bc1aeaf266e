#include "train/run_peak.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/uninterrupted.h"
#include "io/text/json.h"
#include "io/text/table.h"
#include "train/peak.h"
#include "train/stated_peaks.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path cache_folder() {
  const auto variable = [](const char* name) -> fs::path {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (const fs::path own = variable("LYCEUM_CACHE"); !own.empty()) return own;
  if (const fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "lyceum";
  const fs::path home = variable("HOME");
  return home.empty() ? home : home / ".cache" / "lyceum";
}

/// Size and time of this program's file: another one after every link.
std::string own_build() {
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  return fmt::format("{} B, {}", fs::file_size(program, unknown),
                     fs::last_write_time(program, unknown).time_since_epoch().count());
}

std::string date_of_today() { return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr))); }

/// Of all ranks, ranks that share a GPU counting once; none as soon as a device is not known.
std::optional<RunPeak> stated_peak(const RunConfig& run, const std::vector<RankPlace>& places) {
  RunPeak peak;
  for (const RankPlace& place : places) {
    const StatedPeaks stated = place.device == "cpu" ? StatedPeaks{} : stated_peaks(place.processor);
    const double flops = run.precision == "bf16" ? stated.bf16_flops : stated.f32_flops;
    if (flops == 0) return {};
    const auto sharers = std::ranges::count_if(
        places, [&](const RankPlace& other) { return other.host == place.host && other.device == place.device; });
    peak.flops += flops / static_cast<double>(sharers);
  }
  peak.source = fmt::format("as specified for {} in {}", places.front().processor, run.precision);
  return peak;
}

/// How this rank's machine is used: what a measured peak holds for.
std::string way_of_measuring(const RunConfig& run, const RankPlace& own, const std::vector<RankPlace>& places) {
  const auto ranks = std::ranges::count(places, own.host, &RankPlace::host);
  return fmt::format("{}, {} of {}, {}", own.processor, count_text(ranks, "rank"), count_text(own.threads, "thread"),
                     run.precision);
}

/// Collective. What this rank's machine does with all of its ranks at once.
double measured_peak(const RunConfig& run, const RunSetup& setup, const RankPlace& own) {
  const auto measured = std::bit_cast<std::int64_t>(measure_gemm_peak(setup.stream, working_type(run)).flops);
  std::vector<std::int64_t> of_ranks(setup.places.size());
  setup.mesh.world.all_gather(std::span(&measured, 1), of_ranks);
  double sum = 0;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (setup.places[rank].host == own.host) sum += std::bit_cast<double>(of_ranks[rank]);
  }
  return sum;
}

/// What the file holds; no object where it cannot be read.
Json read_peaks(const fs::path& file) {
  std::ifstream stream = open_to_read(file);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  try {
    require_shallow(text);
  } catch (const Error&) {
    return {};
  }
  return parse_json<Json>(text, /*allow_exceptions=*/false);
}

}  // namespace

KeptPeaks::KeptPeaks(const std::string& host, std::string build) : build_(std::move(build)) {
  const fs::path folder = cache_folder();
  if (!folder.empty()) file_ = folder / ("peak-" + host + ".json");
}

std::optional<KeptPeaks::Entry> KeptPeaks::find(const std::string& what) const {
  const Json all = read_peaks(file_);
  if (!all.is_object() || !all.contains(what)) return {};
  try {
    const Json& entry = all.at(what);
    const Entry found{.flops = entry.at("flops"), .date = entry.at("date")};
    if (entry.at("build").get<std::string>() != build_ || !std::isfinite(found.flops) || !(found.flops > 0)) return {};
    return found;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

void KeptPeaks::keep(const std::string& what, const Entry& entry) const {
  if (file_.empty()) return;
  Json all = read_peaks(file_);
  if (!all.is_object()) all = Json::object();
  all[what] = {{"flops", entry.flops}, {"date", entry.date}, {"build", build_}};
  try {
    fs::create_directories(file_.parent_path());
    replace_file(file_, json_text(all, 2) + '\n');
  } catch (const std::exception&) {  // a folder that cannot be written: the next start measures again
  }
}

RunPeak peak_of_run(const RunConfig& run, const RunSetup& setup, bool remeasure) {
  if (const auto stated = stated_peak(run, setup.places)) return *stated;
  const ProcessGroup& world = setup.mesh.world;
  const RankPlace& own = setup.places[static_cast<std::size_t>(world.rank())];
  const bool speaks = own.local_rank == 0;  // for its machine
  const KeptPeaks kept(own.host, own_build());
  const std::string what = way_of_measuring(run, own, setup.places);
  const std::optional<KeptPeaks::Entry> known = speaks && !remeasure ? kept.find(what) : std::nullopt;
  std::array<std::int64_t, 1> missing{speaks && !known ? 1 : 0};
  world.all_reduce(std::span(missing), Reduction::max);
  KeptPeaks::Entry entry = known.value_or(KeptPeaks::Entry{});
  if (missing[0] != 0) {
    entry = {.flops = measured_peak(run, setup, own), .date = date_of_today()};
    if (speaks) kept.keep(what, entry);
  }
  std::array<double, 1> sum{speaks ? entry.flops : 0};
  world.all_reduce(std::span(sum));
  return {.flops = sum[0],
          .source = missing[0] != 0 ? "measured now, on all ranks at once"
                                    : fmt::format("measured on {} (--remeasure repeats this)", entry.date)};
}

}  // namespace lyceum
