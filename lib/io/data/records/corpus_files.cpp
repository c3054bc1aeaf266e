#include "io/data/records/corpus_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "io/data/records/json_lines.h"
#include "io/data/records/plain_text.h"
#include "io/data/records/record_formats.h"
#include "io/files/git_lfs.h"
#include "io/files/system_reason.h"
#include "io/files/text_stream.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

/// Bytes at the beginning of a file that decide whether it is text. If they end within a character, the rest of that
/// character is read, too.
constexpr std::size_t examined_bytes = 8192;

const RecordFormat& format_of(const fs::path& path, std::string_view beginning, bool all_records) {
  const RecordFormat* const binary = looks_like_text(beginning) ? nullptr : format_by_beginning(beginning);
  if (binary) return *binary;
  return all_records ? json_lines : format_by_name(path);
}

/// Returns what a file is that is not read although it is text, or an empty text: JSON that `lyceum tokenize` writes
/// (token_meta_text(), write_journal()), perhaps into the folder of its text, or a pointer of Git LFS.
std::string_view why_no_text_of_corpus(std::string_view beginning) {
  const auto is = [&](std::string_view start, std::string_view key) {
    return beginning.starts_with(start) && beginning.find(key) != std::string_view::npos;
  };
  if (is("{\n  \"bytes\": ", "\n  \"tokenizer_sha256\": \"")) return "a description of token files";
  if (is("{\n  \"encoding\": \"", "\n  \"outputs\": [")) return "the progress of an encoding";
  return is_lfs_pointer(beginning) ? lfs_pointer_advice : "";
}

/// True if a name is that of token files beside an index, or of their unfinished parts: tokens and lengths. (Their
/// bytes may look like text.)
bool is_part_of_tokens(const fs::path& path) {
  fs::path prefix = path;
  const bool unfinished = prefix.extension() == ".partial";
  if (unfinished) prefix.replace_extension();
  if (prefix.extension() != ".bin" && prefix.extension() != ".mask" && prefix.extension() != ".lengths") return false;
  std::error_code ignored;
  const auto is_beside = [&](const char* ending) {
    return fs::exists(fs::path(prefix).replace_extension(ending), ignored);
  };
  return unfinished ? is_beside(".bin.partial") && is_beside(".lengths.partial") : is_beside(".idx");
}

/// Returns why stat() failed with `error`. `linked`: the path leads through a link.
const char* why_not_found(int error, bool linked) {
  if (error == ELOOP) return "linked in a cycle";
  if (linked && (error == ENOENT || error == ENOTDIR)) return "linked to a missing file";
  return "not readable";
}

/// Collects the names of all files under some roots, and then decides which of them to read.
class FileSearch {
 public:
  void add_root(const std::string& root) {
    const fs::path path(root);
    struct stat status {};
    require_usage(root != "-" || ::stat("-", &status) == 0,
                  "standard input (-) is not supported, since the input is read more than once: write it to a file");
    // Before the call below, since its arguments are evaluated in any order and one of them reads errno.
    const bool exists = ::stat(path.c_str(), &status) == 0;
    require_input(exists, "{} cannot be read: {}", root, system_reason(errno));
    if (S_ISDIR(status.st_mode)) {
      list(fs::canonical(path), status, false);
      return;
    }
    require_input(S_ISREG(status.st_mode),
                  "{} is not a regular file, but the input is read more than once: write it to a file", root);
    // The given name, after the canonical name of its folder.
    const fs::path absolute = fs::absolute(path);
    add_name(fs::canonical(absolute.parent_path()) / absolute.filename(), status, fs::is_symlink(path));
  }

  /// Call it after add_root() of all roots.
  CorpusFiles finish(bool all_records) {
    follow_links();
    CorpusFiles result;
    for (auto& [identity, names] : files_) {
      std::ranges::sort(names, [](const Name& a, const Name& b) {
        return std::tie(a.is_text, a.linked, a.path) < std::tie(b.is_text, b.linked, b.path);
      });
      for (std::size_t i = 1; i < names.size(); ++i) skipped_[names[i].path] = "read under another name";
    }
    std::map<fs::path, CorpusItem> items;
    for (const auto& [identity, names] : files_) {
      if (std::optional<CorpusItem> item = examine(names[0].path, all_records)) items[names[0].path] = std::move(*item);
    }
    for (auto& [path, item] : items) result.files.push_back(std::move(item));
    for (const auto& [path, why] : skipped_) result.skipped.add(why, path.native());
    std::ranges::sort(like_records_);
    result.texts_like_records = std::move(like_records_);
    std::ranges::sort(like_lists_);
    result.texts_like_lists = std::move(like_lists_);
    return result;
  }

 private:
  using Identity = std::pair<dev_t, ino_t>;
  /// A name of a file. The file is read under the smallest of its names, compared by (is_text, linked, path).
  struct Name {
    bool is_text, linked;  // is_text: its ending names no format
    fs::path path;
  };

  static Identity identity_of(const struct stat& status) { return {status.st_dev, status.st_ino}; }

  void add_name(const fs::path& path, const struct stat& status, bool linked) {
    std::vector<Name>& names = files_[identity_of(status)];
    if (std::ranges::find(names, path, &Name::path) != names.end()) return;
    names.push_back({.is_text = &format_by_name(path) == &plain_text, .linked = linked, .path = path});
  }

  /// Adds the entries of a folder. `linked`: the path leads through a link to this folder or to one above it.
  void list(const fs::path& folder, const struct stat& status, bool linked) {
    const auto [known, is_new] = folders_.emplace(identity_of(status), folder);
    if (!is_new) {
      if (known->second != folder) skipped_[folder] = "read under another name";
      return;
    }
    std::error_code error;
    std::vector<fs::path> paths;
    for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
         entry.increment(error)) {
      paths.push_back(entry->path());
    }
    if (error == std::errc::permission_denied) {
      skipped_[folder] = "not readable";
      return;
    }
    require_input(!error, "cannot list the files under {}: {}", folder.native(), error.message());
    std::ranges::sort(paths);  // the name under which a folder is found first must not depend on the file system
    for (const fs::path& path : paths) {
      if (path.filename().native().starts_with('.')) {
        skipped_[path] = "hidden";
      } else if (std::error_code gone; fs::is_symlink(path, gone)) {
        links_.push_back(path);
      } else {
        add_entry(path, linked);
      }
    }
  }

  void add_entry(const fs::path& path, bool linked) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      const int error = errno;
      skipped_[path] = why_not_found(error, linked);
    } else if (S_ISDIR(status.st_mode)) {
      list(path, status, linked);
    } else if (!S_ISREG(status.st_mode)) {
      skipped_[path] = "not a regular file";
    } else if (::access(path.c_str(), R_OK) != 0) {
      skipped_[path] = "not readable";
    } else {
      add_name(path, status, linked);
    }
  }

  /// Looks at the targets of all links. Runs after all other entries, so that a folder is listed under its own name if
  /// it is also found without a link. The loop extends `links_`: linked folders may contain links.
  void follow_links() {
    for (std::size_t i = 0; i < links_.size(); ++i) add_entry(fs::path(links_[i]), true);
  }

  /// Returns the item of a file; nothing if the file is skipped.
  std::optional<CorpusItem> examine(const fs::path& path, bool all_records) {
    if (is_part_of_tokens(path)) {
      skipped_[path] = "token files";
      return std::nullopt;
    }
    std::string beginning(examined_bytes, '\0');
    TextStream stream(path);
    beginning.resize(stream.read(beginning));
    for (char next; cut_character_bytes(beginning) > 0 && stream.read({&next, 1}) == 1;) beginning += next;
    const RecordFormat& format = format_of(path, beginning, all_records);
    std::string why(why_no_text_of_corpus(beginning));
    if (why.empty()) why = format.why_unreadable(beginning);
    if (!why.empty()) {
      skipped_[path] = why;
      return std::nullopt;
    }
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(path, error);
    require_input(!error, "{} cannot be read: {}", path.native(), error.message());
    const bool is_text = &format == &plain_text;
    if (is_text && begins_with_list_of_records(beginning)) like_lists_.push_back(path);
    if (is_text && begins_with_record(std::move(beginning), stream)) like_records_.push_back(path);
    return CorpusItem{.format = &format,
                      .document = {path, 0, static_cast<std::int64_t>(bytes)},
                      .compressed = stream.compressed(),
                      .modified = fs::last_write_time(path, error).time_since_epoch().count()};
  }

  std::map<Identity, std::vector<Name>> files_;
  std::map<Identity, fs::path> folders_;  // folders that were listed, and the name under which each was
  std::vector<fs::path> links_;           // found below the roots
  std::map<fs::path, std::string> skipped_;
  std::vector<fs::path> like_records_, like_lists_;
};

}  // namespace

CorpusFiles find_corpus_files(std::span<const std::string> roots, bool all_records) {
  FileSearch search;
  for (const std::string& root : roots) search.add_root(root);
  return search.finish(all_records);
}

}  // namespace lyceum
