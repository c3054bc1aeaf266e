#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/read.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Returns the directory name of a step's checkpoint, such as "step-00000100".
std::string checkpoint_name(std::int64_t step);

/// Returns the names of all directories in `root` that are named like checkpoints, whatever they contain, newest first;
/// none if `root` does not exist. Throws a failed Error if `root` exists and cannot be listed, for example if it is a
/// file or a link to a missing folder.
std::vector<std::string> list_checkpoint_directories(const std::filesystem::path& root);
/// Returns the names of the checkpoints in `root`, newest first: of the directories that list_checkpoint_directories()
/// returns, those with a manifest. Their files are not checked. Throws as that function does.
std::vector<std::string> list_checkpoints(const std::filesystem::path& root);

/// Returns the directory of checkpoints that the user means by `path`: `path`/checkpoints if that exists and `path` has
/// no checkpoint directories itself, else `path`. Throws as list_checkpoint_directories() does.
std::filesystem::path checkpoint_root_in(const std::filesystem::path& path);

/// Returns the checkpoint that the user means by `path`, which may be
/// - a checkpoint, which is returned, or
/// - a directory of checkpoints or the folder of a run: the checkpoint that LATEST names, or the newest one if there is
///   no valid LATEST.
/// Checks only that it has a manifest. Throws a bad_input Error if there is no checkpoint, and as list_checkpoints()
/// does.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

/// Collective. Opens the checkpoint that a run resumes from; returns nothing if it starts anew. `resume` is the value
/// of checkpoint.resume:
/// - "none": no checkpoint.
/// - "auto": the newest checkpoint of `root` that is sound and passes verification; if there is none, and unless
///   `sound_only`, the newest one that passes verification.
/// - a path of a checkpoint, or of a directory of checkpoints.
/// Reports skipped checkpoints through `warn` on rank 0. Throws a bad_input Error if a given path fails verification,
/// or if "auto" finds a newer checkpoint of a format that this build cannot read, since the run would replace it.
std::optional<CheckpointReader> choose_checkpoint(const ProcessGroup& group, const std::filesystem::path& root,
                                                  const std::string& resume,
                                                  const std::function<void(const std::string&)>& warn,
                                                  bool sound_only = false);

/// Repairs `root` after runs were killed. To be called by one rank.
/// - Removes `.partial` and `.removing` directories, empty directories named like checkpoints, and LATEST.partial.
///   Leaves those that cannot be removed now.
/// - Renames STEP.replaced to STEP if the run was killed before the new checkpoint STEP had its name; removes it
///   otherwise.
/// Throws a failed Error if `root` exists and cannot be listed, or if such a renaming fails: no checkpoint may be
/// overlooked.
void repair_checkpoints(const std::filesystem::path& root);

/// Writes `name`, a checkpoint of `root`, to the file LATEST. To be called by one rank. Throws a failed Error if the
/// file cannot be written.
void set_latest(const std::filesystem::path& root, const std::string& name);

/// Calls repair_checkpoints(), then removes old checkpoints. To be called by one rank.
/// - The newest `keep` complete checkpoints are kept, not counting timed ones; 0 keeps all. A checkpoint is complete if
///   all its files have their full length.
/// - A timed checkpoint is removed once `keep` newer ones of any kind exist, or one if `keep` is 0.
/// - Never removed are the newest sound checkpoint; the one that LATEST names, and newer ones, from which the run went
///   back; checkpoints that this build cannot read; and anything that no run wrote.
/// A directory is renamed to `.removing` before its first file is removed.
void prune_checkpoints(const std::filesystem::path& root, std::int64_t keep);

}  // namespace lyceum
