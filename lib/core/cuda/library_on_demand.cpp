#include "core/library_on_demand.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/error.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;

/// Returns the folders directly below `folder` in alphabetical order. A folder that cannot be read has none.
std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_directory(unknown)) all.push_back(entry->path());
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace

std::vector<std::string> nvidia_library_folders() {
  std::vector<std::string> all;
  const auto add = [&](const fs::path& folder) {
    std::error_code unknown;
    if (!fs::is_directory(folder, unknown)) return;
    if (std::ranges::find(all, folder.string()) == all.end()) all.push_back(folder);
  };
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value ? value : "");
  };
  for (const fs::path& toolkit : {variable("CUDA_HOME"), variable("CUDA_PATH"), fs::path("/usr/local/cuda")}) {
    if (!toolkit.empty()) add(toolkit / "lib64");
  }
  const fs::path home = variable("HOME");
  for (const fs::path& prefix : {variable("VIRTUAL_ENV"), variable("CONDA_PREFIX"),
                                 home.empty() ? home : home / ".local", fs::path("/usr/local"), fs::path("/usr")}) {
    if (prefix.empty()) continue;
    for (const fs::path& python : folders_in(prefix / "lib")) {
      if (!python.filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        for (const fs::path& package : folders_in(python / packages / "nvidia")) add(package / "lib");
      }
    }
  }
  return all;
}

void* LibraryOnDemand::load() const {
  if (void* const opened = dlopen(file_, RTLD_NOW)) return opened;
  std::string error = dlerror();
  for (const std::string& folder : nvidia_library_folders()) {
    const std::string path = folder + '/' + file_;
    std::error_code unknown;
    if (!fs::exists(path, unknown)) continue;
    if (void* const opened = dlopen(path.c_str(), RTLD_NOW)) return opened;
    error = dlerror();
  }
  fail(ExitCode::failed, "cannot load {} ({}): install it, or add the folder of {} to LD_LIBRARY_PATH", name_, error,
       file_);
}

void* LibraryOnDemand::symbol(const char* function) const {
  void* const found = dlsym(load(), function);
  require(found, "{} has no {}: another version of {} is needed", file_, function, name_);
  return found;
}

}  // namespace lyceum
