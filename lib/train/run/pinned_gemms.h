#pragma once

#include <filesystem>
#include <string>

#include "io/run/gemm_file.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// Keeps a training run to one algorithm for every shape of matrix product: what its ranks choose by timing they agree
/// on, a file stores it, and a resumed run reads it from there, thus the same bits. Does nothing where
/// run.gemm_choice is `heuristic` or the device is no GPU.
class PinnedGemms {
 public:
  /// Collective; before the first product. Takes what `file` says, where there is none what run.gemm_file says; throws
  /// a bad_input Error where one is damaged. `file` empty: nothing is written.
  PinnedGemms(const RunConfig& run, const RunSetup& setup, std::filesystem::path file);
  /// What was read, for the log of rank 0; empty where that is nothing.
  const std::string& told() const { return told_; }
  const std::filesystem::path& file() const { return file_; }
  /// Whether algorithms are timed, and none was read: a resumed run may then differ in its last bits.
  bool anew() const { return !device_.empty() && pins_.at(device_).empty(); }

  /// Collective; after products of new shapes, and before a checkpoint that follows them. From here on every rank takes
  /// what the lowest one has chosen on such a device. Returns a line for the log of rank 0, empty where nothing is new.
  std::string agree();
  /// On rank 0 the file gets what was agreed on. Throws where it cannot be written: the next call tries again.
  void save();

  const GemmPins& pins() const { return pins_; }

 private:
  GemmPins fresh() const;
  std::string read(const std::string& begin_with);

  const Stream& stream_;
  const ProcessGroup& world_;
  std::filesystem::path file_;
  std::string device_;  // this rank's; empty: nothing is done
  GemmPins pins_;
  std::string told_;
  bool unsaved_ = false;  // pins_ has what the file has not
};

}  // namespace lyceum
