#pragma once

#include <filesystem>
#include <string>

#include "config/config.h"

namespace lyceum {

/// Writes `config.ini` in the folder of a run: the configuration of its latest start. `lyceum train --config` with this
/// file continues the run on any number of ranks. A file that `train` did not write, such as that of `lyceum convert`,
/// is never replaced. Used on one rank.
class ConfigFile {
 public:
  /// `given`: the configuration before resolve(). `resolved`: the one after it, on this mesh. `program`: version and
  /// commit.
  ConfigFile(const Config& given, const Config& resolved, std::string program);

  /// Replaces the file atomically if `train` wrote it or it does not exist. Otherwise leaves it and returns a line for
  /// the log, which is empty if the file has the values of `given`. Throws if the file cannot be read or written.
  std::string write();
  /// Call when the run has saved a checkpoint. If the run began with a checkpoint that checkpoint.resume names,
  /// replaces that name by `auto`, so that the file continues from the run's own checkpoints. Throws if it cannot be
  /// written.
  void checkpoint_saved();

 private:
  void replace() const;

  Config given_, resolved_;
  std::string program_;
  std::filesystem::path path_;
  bool own_ = false;  // this object has written the file
};

/// Throws a usage Error if `file` is the config.ini of a run in the same folder, written by `lyceum train` or `lyceum
/// convert`, but `run_dir`, the value of run.dir in the file, is another folder. This happens if the run was moved or
/// the working directory has changed.
void require_own_folder(const std::filesystem::path& file, const std::filesystem::path& run_dir);

}  // namespace lyceum
