#pragma once

#include <filesystem>

#include "core/error.h"
#include "io/checkpoint/contents.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Called before each phase of writing: "plan", "copy" (in the background only), "shard", "values" (of each piece),
/// "digest" on every rank, "prepare", "manifest", "publish", "latest" on rank 0, by the thread that writes; and on
/// every rank, by the thread that called, as "read" when its pieces were read for the last time. What it throws fails
/// the save, so tests use it to break things. Default: nothing.
using CheckpointProbe = std::function<void(std::string_view phase)>;

/// A save failed on all ranks, and earlier checkpoints are untouched. A lost rank is a plain Error.
class CheckpointNotSaved : public Error {
 public:
  using Error::Error;
};

/// Collective. Writes `root/step-XXXXXXXX/` from every rank's pieces and publishes it atomically: shards into
/// `step-….partial/`, SHA-256 of each, tokenizer.model, transformers.json, manifest.json, index.h5 of virtual datasets,
/// fsync, rename, then LATEST. Pieces of all ranks must cover each logical tensor exactly once: overlaps, holes and
/// unequal shapes are an Error that names tensor and ranks. If any rank cannot write (disk full …) all ranks throw the
/// same CheckpointNotSaved (exit code 4) that names rank, file and cause, the partial directory is removed, and earlier
/// checkpoints and LATEST are untouched. Returns what went wrong after the checkpoint had its name, with LATEST say, on
/// every rank; mostly nothing.
std::string write_checkpoint(const ProcessGroup& group, const std::filesystem::path& root,
                             const CheckpointHeader& header, std::span<const CheckpointPiece> pieces,
                             const CheckpointProbe& probe = {});

/// Saves as write_checkpoint() does, with its files, errors and promises, in two parts: the files are written by a
/// thread of each rank, of a copy of the pieces in the host's memory, which takes 4 bytes a value. The thread sends no
/// message.
class BackgroundCheckpoint {
 public:
  /// Collective. Begins, and returns as soon as the pieces are copied; then they may change. Throws where the save
  /// cannot begin; what goes wrong with the copy or later, publish() throws.
  BackgroundCheckpoint(const ProcessGroup& group, const std::filesystem::path& root, const CheckpointHeader& header,
                       std::span<const CheckpointPiece> pieces, const CheckpointProbe& probe = {});
  /// Abandons a save that is not published: waits until the thread has stopped, which is soon. The `.partial` directory
  /// stays for mend_checkpoints().
  ~BackgroundCheckpoint();
  BackgroundCheckpoint(BackgroundCheckpoint&&) noexcept;

  /// True if this rank's thread is done, with success or not. If all are done, publish() does not wait.
  bool written() const;
  /// Collective, once. Waits for the threads and ends the save; returns and throws as write_checkpoint() does.
  std::string publish();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
