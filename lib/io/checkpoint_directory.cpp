#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "io/checkpoint.h"
#include "io/checkpoint_manifest.h"
#include "io/whole_file.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;

/// The step that a name as checkpoint_name() makes them stands for.
std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view prefix = "step-";
  std::int64_t step = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || stop != end || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

/// The name in LATEST when it is one of a checkpoint that is there, or empty.
std::string latest(const fs::path& root) {
  std::error_code ignored;
  if (!fs::is_regular_file(root / "LATEST", ignored)) return {};
  std::string name = read_whole_file(root / "LATEST");
  name.erase(std::find_if(name.begin(), name.end(), [](char c) { return c == '\n' || c == '\r'; }), name.end());
  return step_of(name) && fs::exists(root / name / manifest_name, ignored) ? name : std::string();
}

/// Whether every file is there in full length: what can be told without reading all of it.
bool looks_intact(const fs::path& directory) {
  try {
    return CheckpointReader(directory).problem(CheckpointReader::Check::sizes).empty();
  } catch (const Error&) {
    return false;
  }
}

/// Collective: the first problem of a checkpoint, or empty; each rank reads every group.size()-th file.
std::string find_problem(const ProcessGroup& group, const fs::path& directory) {
  std::string problem;
  try {
    const Manifest manifest = read_manifest(directory);
    if (group.rank() == 0) {
      problem = coverage_problem(manifest);
      if (!problem.empty()) problem = (directory / manifest_name).string() + ": " + problem;
    }
    for (auto i = static_cast<std::size_t>(group.rank()); i < manifest.files.size() && problem.empty();
         i += static_cast<std::size_t>(group.size())) {
      problem = file_problem(directory, manifest.files[i]);
    }
  } catch (const std::exception& error) {
    problem = error.what();
  }
  for (std::string& found : group.all_gather(problem)) {
    if (!found.empty()) return std::move(found);
  }
  return {};
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

/// resolve_checkpoint() as rank 0 sees it, or its error, on every rank.
fs::path resolve_together(const ProcessGroup& group, const fs::path& path) {
  std::string answer;
  if (group.rank() == 0) {
    try {
      answer = '+' + resolve_checkpoint(path).string();
    } catch (const std::exception& error) {
      answer = std::string("-") + error.what();
    }
  }
  answer = group.broadcast(answer, 0);
  require_input(answer.at(0) == '+', "{}", answer.substr(1));
  return answer.substr(1);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("step-{:08}", step); }

std::vector<std::string> list_checkpoint_directories(const std::filesystem::path& root) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    if (const auto step = step_of(name); step && at->is_directory(ignored)) found.emplace_back(*step, name);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [step, name] : found) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> list_checkpoints(const std::filesystem::path& root) {
  std::vector<std::string> names = list_checkpoint_directories(root);
  std::error_code ignored;
  std::erase_if(names, [&](const std::string& name) { return !fs::exists(root / name / manifest_name, ignored); });
  return names;
}

void prune_checkpoints(const std::filesystem::path& root, std::int64_t keep) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    const fs::path path = at->path();
    const std::string extension = path.extension().string();
    if ((extension == ".partial" || extension == ".replaced") && step_of(path.stem().string()))
      leftovers.push_back(path);
  }
  for (const fs::path& path : leftovers) fs::remove_all(path, error);
  fs::remove(root / "LATEST.partial", error);
  if (keep <= 0) return;
  const std::string kept = latest(root);
  std::int64_t intact = 0;
  for (const std::string& name : list_checkpoints(root)) {
    if (intact >= keep && name != kept) {
      fs::remove_all(root / name, error);  // what cannot go yet (a reader on NFS) goes next time
    } else if (looks_intact(root / name)) {
      ++intact;
    }
  }
}

std::filesystem::path checkpoint_root_in(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool run = fs::is_directory(path / "checkpoints", ignored) && list_checkpoint_directories(path).empty();
  return run ? path / "checkpoints" : path;
}

std::filesystem::path resolve_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  require_input(fs::is_directory(path, ignored), "{}: no such checkpoint directory", path.string());
  if (fs::exists(path / manifest_name, ignored)) return path;
  const fs::path root = checkpoint_root_in(path);
  if (const std::string name = latest(root); !name.empty()) return root / name;
  const std::vector<std::string> names = list_checkpoints(root);
  require_input(!names.empty(), "{}: neither a checkpoint (no {}) nor a directory with checkpoints in it",
                root.string(), manifest_name);
  return root / names.front();
}

std::optional<std::filesystem::path> choose_checkpoint(const ProcessGroup& group, const std::filesystem::path& root,
                                                       const std::string& resume,
                                                       const std::function<void(const std::string&)>& warn) {
  if (resume == "none") return std::nullopt;
  if (resume != "auto") {
    const fs::path path = resolve_together(group, resume);
    const std::string problem = find_problem(group, path);
    require_input(problem.empty(), "cannot resume from {}: {}", path.string(), problem);
    return path;
  }
  for (const std::string& name :
       split_lines(group.broadcast(group.rank() == 0 ? join(list_checkpoint_directories(root)) : "", 0))) {
    const std::string problem = find_problem(group, root / name);
    if (problem.empty()) return root / name;
    if (group.rank() == 0 && warn) warn("checkpoint " + name + " is passed over: " + problem);
  }
  return std::nullopt;
}

}  // namespace lyceum
