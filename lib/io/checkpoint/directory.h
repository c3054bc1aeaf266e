#pragma once

#include <filesystem>
#include <optional>

#include "parallel/comm/process_group.h"

namespace lyceum {

/// "step-00000100"
std::string checkpoint_name(std::int64_t step);

/// Names of the directories under root that are called like checkpoints, whatever is in them, newest first. A failed
/// Error if root exists and cannot be listed, such as a file or a link to a missing folder.
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

/// Removes what killed runs left in `root`: `.partial` and `.removing` directories and empty ones. A checkpoint that a
/// kill left without its name, as `.replaced`, gets it back. One rank calls it; what cannot be removed now stays. A
/// failed Error where `root` is there and cannot be listed, or a checkpoint does not get its name back: none may be
/// overlooked.
void mend_checkpoints(const std::filesystem::path& root);

/// Makes LATEST name this checkpoint of `root`. One rank calls it. Throws if it cannot be written.
void set_latest(const std::filesystem::path& root, const std::string& name);

/// Repairs checkpoints, and removes all but the newest `keep` complete checkpoints (0 keeps all); one rank calls it.
/// Timed ones are not counted against the others, and are removed once `keep` newer ones of any kind exist, or one if
/// `keep` is 0. Complete is one whose files all have their full length. These are never removed: the newest sound one,
/// the one that LATEST names and those newer than that, which the run went back from; what this build cannot read;
/// whatever no run wrote. A directory that is being removed is called `.removing` before its first file goes.
void prune_checkpoints(const std::filesystem::path& root, std::int64_t keep);

}  // namespace lyceum
