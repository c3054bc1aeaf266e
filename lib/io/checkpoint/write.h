#pragma once

#include <filesystem>

#include "core/error.h"
#include "io/checkpoint/contents.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// A hook that is called before each phase of a save. If it throws, the save fails; tests use it to simulate failures.
/// By default it does nothing. The phases are
/// - on every rank "plan", "copy" (background saves only), "shard", "values" (for each slice) and "digest";
/// - on every rank "read", when the values of the slices have been read for the last time;
/// - on rank 0 "prepare", "manifest", "publish" and "latest".
/// "plan", "copy" and "read" are called by the thread that saves. The others may be called by the thread that accesses
/// the files.
using CheckpointProbe = std::function<void(std::string_view phase)>;

/// A save failed, and every rank throws this error with the same message. Earlier checkpoints are unchanged. If a rank
/// is lost, a plain Error is thrown instead.
class CheckpointNotSaved : public Error {
 public:
  using Error::Error;
};

/// Collective. Writes `root`/step-XXXXXXXX/ from the slices of all ranks and publishes it atomically:
/// 1. Writes the shards and index.h5, with its virtual datasets, to `step-….partial/`, and fsyncs them.
/// 2. Computes their SHA-256; writes tokenizer.model, transformers.json and manifest.json.
/// 3. Renames the directory, then updates LATEST.
/// The slices of all ranks must cover each logical tensor exactly once. Otherwise, or if any rank cannot write, all
/// ranks throw the same CheckpointNotSaved (exit code 4), which names rank and cause. The partial directory is then
/// removed, and earlier checkpoints and LATEST are unchanged.
///
/// Returns on every rank what went wrong after the renaming, for example while LATEST was written; normally an empty
/// string.
std::string write_checkpoint(const ProcessGroup& group, const std::filesystem::path& root,
                             const CheckpointHeader& header, std::span<const CheckpointSlice> slices,
                             const CheckpointProbe& probe = {});

/// A save that runs in the background, with the files, errors and guarantees of write_checkpoint(). On each rank a
/// thread writes the files from a copy of the slices in the host's memory, which takes 4 bytes per value. The thread
/// sends no messages. Call publish() when written() is true on all ranks.
class BackgroundCheckpoint {
 public:
  /// Collective. Begins the save, and returns as soon as the slices are copied; their values may then change. `group`
  /// must outlive the object. Throws CheckpointNotSaved if the save cannot begin. Errors of copying and writing are
  /// thrown by publish().
  BackgroundCheckpoint(const ProcessGroup& group, const std::filesystem::path& root, const CheckpointHeader& header,
                       std::span<const CheckpointSlice> slices, const CheckpointProbe& probe = {});
  /// Abandons the save if it has not been published: asks the thread to stop and waits for it briefly. The
  /// `.partial` directory is left for repair_checkpoints() to remove.
  ~BackgroundCheckpoint();
  BackgroundCheckpoint(BackgroundCheckpoint&&) noexcept;

  /// True if this rank's thread has ended, successfully or not. publish() does not wait if this is true on all ranks.
  bool written() const;
  /// Collective; to be called once. Waits for the threads of all ranks and publishes the checkpoint. Returns and throws
  /// as write_checkpoint() does.
  std::string publish();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
