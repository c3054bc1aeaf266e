#include "io/checkpoint/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "io/checkpoint/manifest.h"
#include "io/files/atomic_file.h"
#include "io/files/system_reason.h"
#include "io/files/whole_file.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;

/// Returns the step of a name that checkpoint_name() made, or nothing for any other name.
std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view prefix = "step-";
  std::int64_t step = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || stop != end || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

/// True if the file certainly does not exist; false if it exists or its status cannot be read.
bool is_absent(const fs::path& path) {
  std::error_code error;
  return !fs::exists(path, error) && !error;
}

/// Returns the entries of a directory; none if it does not exist. Throws a failed Error if it cannot be listed, is not
/// a directory, or is a link to a missing folder: treating these as empty would let a run overwrite checkpoints.
std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    entries.push_back(at->path());
  }
  if (!error) return entries;
  std::error_code unknown;
  const fs::file_type type = fs::symlink_status(directory, unknown).type();
  require(type != fs::file_type::symlink || fs::exists(directory, unknown) || unknown,
          "{} is a link to {}, which does not exist: mount or restore that folder, or remove the link",
          directory.string(), fs::read_symlink(directory, unknown).string());
  require(type == fs::file_type::not_found, "{}: cannot be listed: {}", directory.string(), system_reason(error));
  return entries;
}

/// Returns the name in LATEST if that checkpoint exists, or an empty string.
std::string latest_checkpoint(const fs::path& root) {
  std::error_code ignored;
  if (!fs::is_regular_file(root / "LATEST", ignored)) return {};
  std::string name;
  try {
    name = read_whole_file(root / "LATEST");
  } catch (const Error&) {
    return {};  // An unreadable LATEST counts as missing: callers then take the newest checkpoint.
  }
  name.erase(std::find_if(name.begin(), name.end(), [](char c) { return c == '\n' || c == '\r'; }), name.end());
  return step_of(name) && fs::exists(root / name / manifest_name, ignored) ? name : std::string();
}

/// The state of a checkpoint on which its removal by prune_checkpoints() depends, found without reading whole files.
struct RetentionState {
  bool readable = false;  // the manifest can be read
  bool intact = false;    // every file exists in its full length
  bool sound = false;     // intact, and no reason against resuming is recorded
  bool timed = false;
};
RetentionState retention_state_of(const fs::path& directory) {
  try {
    const Manifest manifest = read_manifest_head(directory);
    const bool intact = std::ranges::all_of(manifest.files, [&](const StoredFile& file) {
      return file_problem(directory, file, /*sizes_only=*/true).empty();
    });
    return {.readable = true,
            .intact = intact,
            .sound = intact && manifest.header.unsound.empty(),
            .timed = manifest.header.timed};
  } catch (const std::exception&) {
    return {};
  }
}

/// Removes a checkpoint in two steps, so that an incomplete checkpoint never has a valid name, even after a power
/// failure:
/// 1. Renames the directory to `.removing` and syncs its parent.
/// 2. Removes the files.
/// Does not throw. Files that cannot be removed now, for example while they are read over NFS, are removed the next
/// time.
void remove_checkpoint(const fs::path& directory) {
  std::error_code error;
  fs::path removing = directory;
  removing += ".removing";
  fs::remove_all(removing, error);
  fs::rename(directory, removing, error);
  if (error) return;
  try {
    sync_path(directory.parent_path());
  } catch (const Error&) {
    return;
  }
  fs::remove_all(removing, error);
}

/// The outcome of reading a checkpoint's manifest, for a run that looks for a checkpoint to resume from. The values of
/// `Kind` are the first character of the message that rank 0 broadcasts.
struct ResumeVerdict {
  enum Kind : char { sound = '+', unsound = '~', unreadable = '-', unknown_format = '!' } kind;
  std::string reason;
};

/// Collective. Rank 0 reads the head of the manifest; all ranks return its verdict.
ResumeVerdict agree_on_verdict(const ProcessGroup& group, const fs::path& directory) {
  std::string answer;
  work_on_files_of_rank_zero(group, [&] {
    try {
      const std::string unsound = read_manifest_head(directory).header.unsound;
      answer =
          unsound.empty() ? std::string(1, ResumeVerdict::sound) : static_cast<char>(ResumeVerdict::unsound) + unsound;
    } catch (const UnknownFormat& error) {
      answer = static_cast<char>(ResumeVerdict::unknown_format) + std::string(error.what());
    } catch (const std::exception& error) {
      answer = static_cast<char>(ResumeVerdict::unreadable) + std::string(error.what());
    }
  });
  answer = group.broadcast(answer, 0);
  return {static_cast<ResumeVerdict::Kind>(answer.at(0)), answer.substr(1)};
}

/// A checkpoint that was opened and verified by all ranks.
struct Verified {
  std::string problem;                     // the first one that a rank found; empty if there is none
  std::optional<CheckpointReader> reader;  // set if there is no problem
};

/// Collective. Opens and verifies a checkpoint, with its files shared out over the ranks. Does not throw if the
/// checkpoint is bad.
Verified open_verified(const ProcessGroup& group, const fs::path& directory) {
  std::string problem;
  std::optional<CheckpointReader> reader;
  work_on_files(group, [&] {
    try {
      Manifest manifest = read_manifest(directory);
      if (group.rank() == 0) {
        problem = coverage_problem(manifest);
        if (!problem.empty()) problem = (directory / manifest_name).string() + ": " + problem;
      }
      for (auto i = static_cast<std::size_t>(group.rank()); i < manifest.files.size() && problem.empty();
           i += static_cast<std::size_t>(group.size())) {
        problem = file_problem(directory, manifest.files[i]);
      }
      reader.emplace(directory, std::move(manifest));
    } catch (const std::exception& error) {
      problem = error.what();
    }
  });
  for (std::string& found : group.all_gather(problem)) {
    if (!found.empty()) return {.problem = std::move(found), .reader = std::nullopt};
  }
  return {.problem = {}, .reader = std::move(reader)};
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line;
    text += '\n';
  }
  return text;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

/// Collective. Calls resolve_checkpoint() on rank 0. Returns its result on every rank, or throws its error as bad_input
/// on every rank.
fs::path resolve_together(const ProcessGroup& group, const fs::path& path) {
  std::string answer;
  work_on_files_of_rank_zero(group, [&] {
    try {
      answer = '+' + resolve_checkpoint(path).string();
    } catch (const std::exception& error) {
      answer = std::string("-") + error.what();
    }
  });
  answer = group.broadcast(answer, 0);
  require_input(answer.at(0) == '+', "{}", answer.substr(1));
  return answer.substr(1);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("step-{:08}", step); }

std::vector<std::string> list_checkpoint_directories(const std::filesystem::path& root) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const fs::path& path : entries_of(root)) {
    std::string name = path.filename().string();
    std::error_code ignored;
    if (const auto step = step_of(name); step && fs::is_directory(path, ignored)) {
      found.emplace_back(*step, std::move(name));
    }
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [step, name] : found) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> list_checkpoints(const std::filesystem::path& root) {
  std::vector<std::string> names = list_checkpoint_directories(root);
  std::erase_if(names, [&](const std::string& name) { return is_absent(root / name / manifest_name); });
  return names;
}

void repair_checkpoints(const std::filesystem::path& root) {
  std::error_code error;
  for (const fs::path& path : entries_of(root)) {
    const fs::path name = path.parent_path() / path.stem();
    const std::string extension = path.extension().string();
    if (!step_of(name.filename().string())) continue;
    if (extension == ".replaced" && !fs::exists(name, error)) {
      rename_path(path, name);
    } else if (extension == ".partial" || extension == ".replaced" || extension == ".removing") {
      fs::remove_all(path, error);
    } else if (extension.empty() && fs::is_directory(fs::symlink_status(path, error))) {
      fs::remove(path, error);  // fails, as intended, unless the directory is empty
    }
  }
  fs::remove(root / "LATEST.partial", error);
}

void set_latest(const std::filesystem::path& root, const std::string& name) {
  if (latest_checkpoint(root) != name) replace_file(root / "LATEST", name + "\n");
}

void prune_checkpoints(const std::filesystem::path& root, std::int64_t keep) {
  repair_checkpoints(root);
  const bool keep_all = keep <= 0;
  const std::string current = latest_checkpoint(root);
  std::int64_t intact = 0, lasting = 0;  // kept checkpoints, and those of them that are not timed
  bool sound = false;                    // a sound checkpoint was kept
  for (const std::string& name : list_checkpoints(root)) {
    if (!current.empty() && step_of(name) > step_of(current)) continue;
    if (keep_all && lasting > 1) break;  // older timed ones were removed when these were saved
    const RetentionState state = retention_state_of(root / name);
    if (!state.readable) continue;
    const bool among_newest = state.timed ? intact < std::max<std::int64_t>(keep, 1) : keep_all || lasting < keep;
    if (among_newest || name == current || (state.sound && !sound)) {
      intact += state.intact;
      lasting += state.intact && !state.timed;
      sound = sound || state.sound;
    } else {
      remove_checkpoint(root / name);
    }
  }
}

std::filesystem::path checkpoint_root_in(const std::filesystem::path& path) {
  std::error_code ignored;
  // A link to a missing folder counts too; the caller then reports it.
  const bool is_run_folder =
      fs::exists(fs::symlink_status(path / "checkpoints", ignored)) && list_checkpoint_directories(path).empty();
  return is_run_folder ? path / "checkpoints" : path;
}

std::filesystem::path resolve_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  require_input(fs::is_directory(path, ignored), "{}: no such checkpoint directory", path.string());
  if (fs::exists(path / manifest_name, ignored)) return path;
  const fs::path root = checkpoint_root_in(path);
  if (const std::string name = latest_checkpoint(root); !name.empty()) return root / name;
  const std::vector<std::string> names = list_checkpoints(root);
  require_input(!names.empty(), "{} is neither a checkpoint (it has no {}) nor a directory of checkpoints",
                root.string(), manifest_name);
  return root / names.front();
}

std::optional<CheckpointReader> choose_checkpoint(const ProcessGroup& group, const std::filesystem::path& root,
                                                  const std::string& resume,
                                                  const std::function<void(const std::string&)>& warn,
                                                  bool sound_only) {
  if (resume == "none") return std::nullopt;
  if (resume != "auto") {
    const fs::path path = resolve_together(group, resume);
    Verified verified = open_verified(group, path);
    require_input(verified.problem.empty(), "cannot resume from {}: {}", path.string(), verified.problem);
    return std::move(verified.reader);
  }
  std::vector<std::string> unsound;
  std::string reason;  // of the newest unsound checkpoint
  const auto report = [&](const std::string& text) {
    if (group.rank() == 0 && warn) warn(text);
  };
  const auto open_or_report = [&](const std::string& name) {
    Verified verified = open_verified(group, root / name);
    if (!verified.problem.empty()) report("checkpoint " + name + " is skipped: " + verified.problem);
    return std::move(verified.reader);
  };
  for (const std::string& name :
       split_lines(group.broadcast(group.rank() == 0 ? join(list_checkpoint_directories(root)) : "", 0))) {
    const ResumeVerdict verdict = agree_on_verdict(group, root / name);
    require_input(verdict.kind != ResumeVerdict::unknown_format,
                  "{}; this run would replace it: set another run.dir, or move the checkpoint away", verdict.reason);
    if (verdict.kind == ResumeVerdict::unsound) {
      if (unsound.empty()) reason = verdict.reason;
      unsound.push_back(name);
      continue;
    }
    std::optional<CheckpointReader> reader = open_or_report(name);
    if (!reader) continue;
    if (!unsound.empty()) {
      const std::string others =
          unsound.size() > 1 ? fmt::format(" and {} more are", unsound.size() - 1) : std::string(" is");
      report(fmt::format(
          "resuming from {}, the newest sound checkpoint: {}{} not sound: {} (checkpoint.resume = PATH selects "
          "another)",
          name, unsound.front(), others, reason));
    }
    return reader;
  }
  for (const std::string& name : unsound) {
    if (sound_only) continue;
    std::optional<CheckpointReader> reader = open_or_report(name);
    if (!reader) continue;
    report(fmt::format("no checkpoint is sound: resuming from {} nevertheless", name));
    return reader;
  }
  return std::nullopt;
}

}  // namespace lyceum
