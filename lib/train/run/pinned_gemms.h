#pragma once

#include <filesystem>
#include <string>

#include "io/run/gemm_file.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// Makes all ranks of a training run use the same GEMM algorithm for each shape of matrix product, also after it is
/// resumed, so that a resumed run has the same bits. Ranks choose algorithms by timing them; agree() exchanges the
/// choices, and save() stores them in a file, which the next start reads. Does nothing unless run.gemm_choice is
/// `timed` and the device is a GPU.
class PinnedGemms {
 public:
  /// Collective over the world. Construct before the first product. Reads the choices from `file`, or from
  /// run.gemm_file if `file` does not exist. Throws a bad_input Error if the file read is damaged. An empty `file` is
  /// neither read nor written. `setup` must outlive this.
  PinnedGemms(const RunConfig& run, const RunSetup& setup, std::filesystem::path file);
  /// Returns a line for the log of rank 0 about the choices that were read; empty if there were none.
  const std::string& report_line() const { return report_line_; }
  const std::filesystem::path& file() const { return file_; }
  /// True if algorithms are timed and none is known for this GPU. A resumed run may then differ in its last bits.
  bool nothing_pinned() const { return !device_.empty() && pins_.at(device_).empty(); }

  /// Collective over the world. Call after products of new shapes, and before a checkpoint of the step that ran them.
  /// For each new shape, all ranks with the same kind of GPU use the algorithm of the lowest of them from now on.
  /// Returns a line for the log of rank 0; empty if no shape is new.
  std::string agree();
  /// Writes the choices to the file, on rank 0. Throws if the file cannot be written; the next call then tries again.
  void save();

  const GemmPins& pins() const { return pins_; }

 private:
  /// Returns the choices of this rank since the last agree().
  GemmPins fresh() const;
  /// Call on rank 0. Reads `file_`, or `begin_with` if it does not exist, and returns the text of the choices. Sets
  /// report_line_.
  std::string read(const std::string& begin_with);

  const Stream& stream_;
  const ProcessGroup& world_;
  std::filesystem::path file_;
  std::string device_;  // the kind of this rank's GPU, a key of pins_; empty: this object does nothing
  GemmPins pins_;
  std::string report_line_;
  bool unsaved_ = false;  // pins_ has choices that file_ lacks
};

}  // namespace lyceum
