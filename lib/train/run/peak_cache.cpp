#include "train/run/peak_cache.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <iterator>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/open_regular.h"
#include "io/text/json.h"

namespace lyceum {

namespace {

/// The number of the method of measuring. Increase it when the method changes: entries of other methods are not used.
constexpr int measuring_method = 2;

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Identifies this build by the size and time of the program's file, which change whenever it is linked.
std::string own_build() {
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  return fmt::format("{} B, {}", fs::file_size(program, unknown),
                     fs::last_write_time(program, unknown).time_since_epoch().count());
}

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

/// Returns the contents of the file; a value that is not an object if it cannot be read.
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

PeakCache::PeakCache(const std::string& host) : PeakCache(host, own_build()) {}

PeakCache::PeakCache(const std::string& host, std::string build) : build_(std::move(build)) {
  const fs::path folder = cache_folder();
  if (!folder.empty()) file_ = folder / ("peak-" + host + ".json");
}

std::optional<PeakCache::Entry> PeakCache::find(const std::string& what) const {
  const Json all = read_peaks(file_);
  if (!all.is_object() || !all.contains(what)) return {};
  try {
    const Json& entry = all.at(what);
    const Entry found{.flops = entry.at("flops"), .date = entry.at("date")};
    if (entry.at("method") != measuring_method || entry.at("build").get<std::string>() != build_ ||
        !std::isfinite(found.flops) || !(found.flops > 0))
      return {};
    return found;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

void PeakCache::keep(const std::string& what, const Entry& entry) const {
  if (file_.empty()) return;
  Json all = read_peaks(file_);
  if (!all.is_object()) all = Json::object();
  all[what] = {{"flops", entry.flops}, {"date", entry.date}, {"method", measuring_method}, {"build", build_}};
  try {
    fs::create_directories(file_.parent_path());
    replace_file(file_, json_text(all, 2) + '\n');
  } catch (const std::exception&) {  // the folder cannot be written: the next start measures again
  }
}

}  // namespace lyceum
