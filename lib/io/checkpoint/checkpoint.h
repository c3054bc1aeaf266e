#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "io/files/box.h"
#include "io/run/batch_job.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// What one rank contributes of one logical tensor: f32 values, row-major within the box.
struct CheckpointPiece {
  std::string name;  // "model/layers/3/mlp/experts/17/gate_proj/weight", "optimizer/exp_avg/model/layers/…"
  Shape shape;       // of the whole logical tensor
  Box box;
  const float* values = nullptr;
  const Stream* stream = nullptr;  // where the values lie; null: on the host
  /// Where `values` is null: fills them when they are written, so that no two pieces need be there at once.
  std::function<void(std::span<float>)> make = {};
};

/// Before the name of a weight: its two moments.
constexpr std::string_view first_moment = "optimizer/exp_avg/", second_moment = "optimizer/exp_avg_sq/";
/// Whether a logical tensor is a moment.
inline bool is_moment(std::string_view name) { return name.starts_with("optimizer/"); }

/// What a checkpoint is besides tensors.
struct CheckpointHeader {
  std::string run_uuid;
  std::int64_t step = 0;
  std::string mesh;               // text of the mesh that wrote it
  std::string config;             // resolved configuration, INI
  std::string trainer_state;      // JSON, of rank 0: samples seen, skipped steps, last losses …
  std::optional<BatchJob> job{};  // that wrote it
  std::string unsound{};          // why no run should resume from it; empty: it is sound
  bool timed = false;             // saved because of checkpoint.minutes
  std::string tokenizer{};  // bytes of its tokenizer.model, to be written; readers have CheckpointReader::tokenizer
  std::string
      transformers{};  // JSON, to be written: side files of the imported model; see CheckpointReader::transformers
};

constexpr std::string_view tokenizer_name = "tokenizer.model", transformers_name = "transformers.json";

/// Called before each phase of writing: "plan", "copy" (in the background only), "shard", "digest" on every rank,
/// "prepare", "manifest", "publish", "latest" on rank 0; and on every rank, by the thread that called, as "read" when
/// its pieces were read for the last time. What it throws fails the save, so tests use it to break things. Default:
/// nothing.
using CheckpointProbe = std::function<void(std::string_view phase)>;

/// A save failed on all ranks alike, and earlier checkpoints are untouched. A lost rank, say, is another Error.
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

/// The same in two parts, with the same files, errors and promises: the ranks' files are written by a thread of each
/// rank, of a copy of the pieces in the host's memory, which takes 4 bytes a value. The thread sends no message.
class BackgroundCheckpoint {
 public:
  /// Collective. Begins, and returns as soon as the pieces are copied; then they may change. Throws where the save
  /// cannot begin; what goes wrong with the copy or later, publish() throws.
  BackgroundCheckpoint(const ProcessGroup& group, const std::filesystem::path& root, const CheckpointHeader& header,
                       std::span<const CheckpointPiece> pieces, const CheckpointProbe& probe = {});
  /// Gives up what is not published: waits until the thread has stopped, which it does soon. The `.partial` directory
  /// stays for mend_checkpoints().
  ~BackgroundCheckpoint();
  BackgroundCheckpoint(BackgroundCheckpoint&&) noexcept;

  /// Whether this rank's thread is done, with success or not. When it is on all ranks, publish() waits for none.
  bool written() const;
  /// Collective, once. Waits for the threads and ends the save; returns and throws as write_checkpoint() does.
  std::string publish();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Removes what killed runs left in `root`: `.partial` and `.removing` directories and empty ones. A checkpoint that a
/// kill left without its name, as `.replaced`, gets it back. One rank calls it; what cannot be removed now stays. A
/// failed Error where `root` is there and cannot be listed, or a checkpoint does not get its name back: none may be
/// overlooked.
void mend_checkpoints(const std::filesystem::path& root);

/// Makes LATEST name this checkpoint of `root`. One rank calls it. Throws where it cannot be written.
void set_latest(const std::filesystem::path& root, const std::string& name);

/// Repairs checkpoints, and removes all but the newest `keep` complete checkpoints (0 keeps all); one rank calls it.
/// Timed ones are not counted against the others, and are removed once `keep` newer ones of any kind exist, or one if
/// `keep` is 0. Complete is one whose files all have their full length. These are never removed: the newest sound one,
/// the one that LATEST names and those newer than that, which the run went back from; what this build cannot read;
/// whatever no run wrote. A directory that is being removed is called `.removing` before its first file goes.
void prune_checkpoints(const std::filesystem::path& root, std::int64_t keep);

/// One checkpoint opened for reading: any rank, any box, intersecting whatever boxes were saved.
class CheckpointReader {
 public:
  /// Reads manifest.json. Throws a bad_input Error that names file and cause. At most `open_shards` are open at a time:
  /// a process may have some thousand files, and a job more ranks.
  explicit CheckpointReader(std::filesystem::path directory, std::size_t open_shards = 256);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  struct Entry {
    std::string name;
    Shape shape;
  };
  const CheckpointHeader& header() const;
  const std::filesystem::path& directory() const;
  /// All logical tensors, sorted by name.
  const std::vector<Entry>& tensors() const;
  /// Whether it has the optimizer's moments; without them a run continues with new ones.
  bool has_moments() const;
  /// Null when there is no such tensor.
  const Entry* find(const std::string& name) const;
  /// Fills `values` (row-major, f32) with the box. The digest of each shard is verified before HDF5 first opens it.
  void read(const std::string& name, const Box& box, float* values) const;
  /// SHA-256 of the tokenizer that it brings; empty when it has none, as those of earlier versions.
  std::string tokenizer_sha256() const;
  /// The file of that tokenizer. Throws a bad_input Error when it is not what was written.
  std::filesystem::path tokenizer() const;
  /// Returns the text of transformers.json: the files that an imported model's folder had in addition to weights and
  /// tokenizer. Empty if the model was not imported. Throws a bad_input Error if the file has changed since it was
  /// saved.
  std::string transformers() const;
  /// Bytes of all its files.
  std::int64_t bytes() const;
  enum class Check { sizes, digests };
  /// That the boxes cover every tensor once, all files are there in full length and, with Check::digests, hold what was
  /// written (reads everything); the first problem, or empty.
  std::string problem(Check check = Check::digests) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// "step-00000100"
std::string checkpoint_name(std::int64_t step);

/// Names of the directories under root that are called like checkpoints, whatever is in them, newest first. A failed
/// Error where root is there and cannot be listed.
std::vector<std::string> list_checkpoint_directories(const std::filesystem::path& root);
/// Names "step-00000100" of the complete-looking checkpoints under root, newest first. Same error.
std::vector<std::string> list_checkpoints(const std::filesystem::path& root);

/// The directory of checkpoints that a path means: itself, or `checkpoints/` in a run's directory.
std::filesystem::path checkpoint_root_in(const std::filesystem::path& path);

/// The checkpoint that a path means: itself, or in a directory of checkpoints, or of a run, the one that LATEST names
/// (the newest when LATEST is not there). A bad_input Error when there is none.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

/// Collective. `resume` as in the configuration: "none", "auto" or a path (a checkpoint, or a directory of them).
/// auto takes the newest sound checkpoint that verifies, where there is none the newest that does, and reports through
/// `warn` on rank 0 what it skips; nothing when there is none. A named path that does not verify is a bad_input
/// Error, and so is, with auto, a newer checkpoint in a format that this build does not know: it would be replaced.
/// `sound_only`: auto takes no other.
std::optional<std::filesystem::path> choose_checkpoint(const ProcessGroup& group, const std::filesystem::path& root,
                                                       const std::string& resume,
                                                       const std::function<void(const std::string&)>& warn,
                                                       bool sound_only = false);

}  // namespace lyceum
