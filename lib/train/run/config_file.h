#pragma once

#include <filesystem>
#include <string>

#include "config/config.h"

namespace lyceum {

/// `config.ini` in a run's folder: the configuration of its last start, such that `--config` with this file continues
/// the run on any number of ranks. A file that `train` did not write, such as that of `lyceum convert`, stays.
class ConfigFile {
 public:
  /// `given`: before resolve(). `resolved`: on this mesh. `program`: version and commit.
  ConfigFile(const Config& given, const Config& resolved, std::string program);

  /// Replaces the file atomically. Returns a line for the log if the file is another one and stays, or else nothing.
  /// Throws if the file cannot be read, and stays, or cannot be written.
  std::string write();
  /// A checkpoint of the run itself exists from now on. If the run began with a checkpoint that checkpoint.resume
  /// names, the file says `auto` now. Throws as write() does.
  void checkpoint_saved();

 private:
  void replace() const;

  Config given_, resolved_;
  std::string program_;
  std::filesystem::path path_;
  bool own_ = false;  // this object has written the file
};

/// Throws a usage Error if `file` is the config.ini of the run in its folder, and `run_dir`, which it names, is another
/// folder: the run was moved, or the working directory is another one.
void require_own_folder(const std::filesystem::path& file, const std::filesystem::path& run_dir);

}  // namespace lyceum
