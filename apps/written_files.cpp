#include "apps/written_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/checkpoint/manifest.h"
#include "io/data/encoding/encoding_journal.h"
#include "io/data/tokens/megatron_format.h"
#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_meta.h"
#include "io/data/tokens/token_source.h"
#include "io/files/new_hdf5.h"
#include "io/files/partial_file.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

using Identity = std::pair<dev_t, ino_t>;

/// Returns which file a path refers to; nothing if it does not exist.
std::optional<Identity> identity_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return Identity{status.st_dev, status.st_ino};
}

fs::path resolved(const fs::path& path) {
  std::error_code unresolvable;  // reported when the file is opened
  const fs::path absolute = fs::absolute(path, unresolvable);
  const fs::path canonical = fs::weakly_canonical(absolute, unresolvable);
  return canonical.empty() ? absolute : canonical;
}

/// Throws a usage Error if a link, a pipe or a device has the name of an output, which would be replaced by a file.
void require_file(const WrittenFile& written) {
  std::error_code unexaminable;  // reported when the file is opened
  const fs::file_status status = fs::symlink_status(written.file, unexaminable);
  require_usage(!fs::is_symlink(status), "{} {} is a link, which would be replaced: name the file itself",
                written.option, written.file.string());
  require_usage(!fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status),
                "{} {} is not a file, and would be replaced by one: name another file", written.option,
                written.file.string());
}

bool is_present(const fs::path& path) { return identity_of(path).has_value(); }

/// True if a folder is a checkpoint or has checkpoints.
bool holds_checkpoints(const fs::path& folder) {
  if (is_present(folder / manifest_name) && is_present(folder / "index.h5")) return true;
  std::error_code unlistable;  // a folder may be written to without being readable
  for (fs::directory_iterator entry(folder, unlistable); !unlistable && entry != fs::directory_iterator();
       entry.increment(unlistable)) {
    if (entry->path().filename().native().starts_with("step-") && is_present(entry->path() / manifest_name))
      return true;
  }
  return false;
}

/// Returns the names that a file has while it is written.
std::array<fs::path, 3> names_of_writing(const fs::path& file) {
  return {file, PartialFile::name_of(file.string()), NewHdf5::temporary_of(file)};
}

void require_not_of_a_run(const WrittenFile& written) {
  constexpr std::array names{"config.ini", "gemm.json", "LOCK", "metrics.jsonl", "routing.h5", "starts.jsonl"};
  const fs::path file = resolved(written.file);
  const fs::path folder = file.parent_path();
  const bool of_run = is_present(file) && std::ranges::find(names, file.filename()) != names.end() &&
                      (is_present(folder / "starts.jsonl") || is_present(folder / "checkpoints"));
  require_usage(!of_run, "{} {} would replace a file of the run {}: name another file", written.option,
                written.file.string(), folder.string());
  require_usage(!holds_checkpoints(folder),
                "{} {} would be in {}, which has checkpoints: name a file in another folder", written.option,
                written.file.string(), folder.string());
}

}  // namespace

void require_harmless(std::span<const WrittenFile> written, std::span<const fs::path> read) {
  std::map<Identity, const WrittenFile*> replaced;
  std::map<fs::path, const WrittenFile*> names;
  for (const WrittenFile& one : written) {
    if (one.file.empty()) continue;
    const auto [other, is_new] = names.emplace(resolved(one.file), &one);
    require_usage(is_new, "{} and {} name the same file, {}", other->second->option, one.option, one.file.string());
    for (const fs::path& name : names_of_writing(one.file)) {
      if (const auto identity = identity_of(name)) replaced.emplace(*identity, &one);
    }
  }
  for (const fs::path& file : replaced.empty() ? std::span<const fs::path>() : read) {
    const auto identity = identity_of(file);
    const auto found = identity ? replaced.find(*identity) : replaced.end();
    if (found == replaced.end()) continue;
    const auto& [option, replacing] = *found->second;
    fail(ExitCode::usage, "{} {} would replace {}, which is read: name another file", option, replacing.string(),
         file.string());
  }
  for (const WrittenFile& one : written) {
    if (one.file.empty()) continue;
    require_not_of_a_run(one);
    for (const fs::path& name : names_of_writing(one.file)) require_file({one.option, name});
  }
}

void require_outside_checkpoints(const std::string& option, const fs::path& folder) {
  const fs::path path = resolved(folder), whole = path.has_filename() ? path : path.parent_path();  // ends in a slash
  for (const fs::path& each : {whole, whole.parent_path()}) {
    require_usage(!holds_checkpoints(each),
                  "{} {} would be in {}, which has the checkpoints of a run: name a folder elsewhere", option,
                  folder.string(), each.string());
  }
}

std::vector<fs::path> files_of_tokens(const std::string& prefix) {
  return {prefix + megatron::tokens_ending,
          prefix + megatron::index_ending,
          meta_path(prefix),
          mask_path(prefix),
          journal_path(prefix),
          lengths_path(prefix)};
}

std::vector<fs::path> configuration_files(const Arguments& arguments) {
  constexpr std::string_view option = "--config", assigned = "--config=";
  std::vector<fs::path> files;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == option && i + 1 < arguments.size()) files.emplace_back(arguments[i + 1]);
    if (arguments[i].starts_with(assigned)) files.emplace_back(arguments[i].substr(assigned.size()));
  }
  return files;
}

}  // namespace lyceum
