#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "apps/commands.h"

namespace lyceum {

/// A file that a command writes, and the option that names it, such as "--html".
struct WrittenFile {
  std::string option;
  std::filesystem::path file;
};

/// Throws a usage Error if writing the files would destroy
/// - one of `read`, the files that the command reads, also under another name (a link, another spelling);
/// - a file of a run (in a folder with checkpoints or starts.jsonl);
/// - a link, a pipe or a device;
/// - each other, since two options name the same file.
///
/// Nor may a file be in a checkpoint (a folder with manifest.json and index.h5). Also examines the temporary names that
/// PartialFile and NewHdf5 give to the files. Empty paths are left out; paths of `read` that do not exist are accepted.
void require_harmless(std::span<const WrittenFile> written, std::span<const std::filesystem::path> read);

/// Throws a usage Error if a folder that a command makes would be a checkpoint, a folder of checkpoints, or in one of
/// them. `option`: the option that names the folder.
void require_outside_checkpoints(const std::string& option, const std::filesystem::path& folder);

/// Returns the files of a prefix of tokens: the tokens, their index, the description, the mask, and the journal and the
/// lengths that an encoding keeps until it ends. They need not exist.
std::vector<std::filesystem::path> files_of_tokens(const std::string& prefix);

/// Returns the files that `--config FILE` or `--config=FILE` names in the arguments of a configuration.
std::vector<std::filesystem::path> configuration_files(const Arguments& arguments);

}  // namespace lyceum
