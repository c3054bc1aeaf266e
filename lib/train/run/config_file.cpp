#include "train/run/config_file.h"

#include <fmt/format.h>

#include <utility>

#include "config/binding.h"
#include "core/error.h"
#include "io/checkpoint/checkpoint.h"
#include "io/files/atomic_file.h"
#include "io/files/whole_file.h"
#include "train/run/starting_point.h"

namespace lyceum {

namespace {

/// The first words of each config.ini that `lyceum train` writes.
constexpr std::string_view mark = "# lyceum train wrote this file";
/// The first words of each config.ini that `lyceum train` or `lyceum convert` writes.
constexpr std::string_view common_mark = "# lyceum ";
constexpr const char* file_name = "config.ini";

/// True if the text has the values of `config`.
bool same_values(const std::string& text, const Config& config, const std::string& name) {
  try {
    return differences(parse_config(text, name).config, config).empty();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void require_own_folder(const std::filesystem::path& file, const std::filesystem::path& run_dir) {
  namespace fs = std::filesystem;
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code error;
  const bool of_run = fs::exists(folder / "starts.jsonl", error) || fs::exists(folder / "checkpoints", error);
  if (file.filename() != file_name || !of_run || fs::equivalent(folder, run_dir, error)) return;
  if (!read_whole_file(file).starts_with(common_mark)) return;
  fail(ExitCode::usage,
       "{} continues a run in {}, but is in another folder: if the run was moved, or started in another working "
       "directory, add --run.dir={}; for another run, copy the file elsewhere",
       file.string(), run_dir.string(), folder.string());
}

ConfigFile::ConfigFile(const Config& given, const Config& resolved, std::string program)
    : given_(given),
      resolved_(resolved),
      program_(std::move(program)),
      path_(std::filesystem::path(given.run.dir) / file_name) {
  const bool has_checkpoint = !list_checkpoints(checkpoint_root(given.run)).empty();
  if (given.checkpoint.resume == "none" || has_checkpoint) given_.checkpoint.resume = "auto";
}

std::string ConfigFile::write() {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(path_, error))) {
    const std::string text = std::filesystem::is_regular_file(path_, error) ? read_whole_file(path_) : "";
    if (!text.starts_with(mark)) {
      return same_values(text, given_, path_.string())
                 ? ""
                 : fmt::format(
                       "config     {} was not written by lyceum train and is left unchanged; starts.jsonl has the "
                       "configuration of this start",
                       path_.string());
    }
  }
  replace();
  own_ = true;
  return {};
}

void ConfigFile::checkpoint_saved() {
  if (!own_ || given_.checkpoint.resume == "auto") return;
  given_.checkpoint.resume = "auto";
  replace();
}

void ConfigFile::replace() const {
  Config resolved = resolved_;
  resolved.checkpoint.resume = given_.checkpoint.resume;
  replace_file(path_,
               fmt::format("{} ({}), and replaces it at each start: edit a copy.\n# To continue the run: lyceum train "
                           "--config {}\n{}",
                           mark, program_, path_.string(), to_ini(given_, resolved)));
}

}  // namespace lyceum
