#include "io/data/records/corpus_files.h"

#include <boost/algorithm/string/case_conv.hpp>
#include <nlohmann/json.hpp>
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
#include "io/data/records/json_record.h"
#include "io/data/records/record_formats.h"
#include "io/files/text_stream.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t looked_at = 8192;                           // bytes of a file that decide whether it is text
constexpr std::size_t longest_first_line = std::size_t{1} << 20;  // that is looked at

std::string lower_case_extension(const fs::path& name) {
  return boost::algorithm::to_lower_copy(name.extension().native());
}

/// The first line that is not blank, or what there is of it.
std::string_view first_line(std::string_view text) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  text = text.substr(0, text.find('\n'));
  return text.substr(0, text.find_last_not_of(" \t\r") + 1);
}

/// True for the first line of an array of objects, and of an object that extends over several lines.
bool is_beginning_of_other_json(std::string_view line) {
  if (!line.starts_with('[')) return line == "{";
  const std::size_t next = line.find_first_not_of(" \t", 1);
  return next == std::string_view::npos || line[next] == '{';
}

/// Why a file that begins like this cannot be read, or "". Each record is checked on its own.
std::string why_unreadable(std::string_view beginning, bool records) {
  if (beginning.empty()) return "empty";
  const std::string_view line = first_line(beginning);
  if (records && is_beginning_of_other_json(line)) return "JSON, but not one record per line";
  if ((records && line.starts_with('{')) || looks_like_text(beginning)) return "";
  if (const std::string format = foreign_format(beginning); !format.empty()) return format;
  if (beginning.find('\0') != std::string_view::npos) return "binary";
  return records ? "" : "not UTF-8";
}

/// Reads on if the first line of a text is a JSON object that goes on. `beginning` is what was read.
bool begins_with_record(std::string beginning, TextStream& stream) {
  if (!first_line(beginning).starts_with('{')) return false;
  if (beginning.size() == looked_at && beginning.find('\n', beginning.find('{')) == std::string::npos) {
    beginning.resize(longest_first_line);
    beginning.resize(looked_at + stream.read(std::span(beginning).subspan(looked_at)));
  }
  try {
    return parsed_record(first_line(beginning)).is_object();
  } catch (const Error&) {
    return beginning.size() == longest_first_line && first_line(beginning).starts_with("{\"");
  }
}

class FileSearch {
 public:
  void look_at_root(const std::string& root) {
    const fs::path path(root);
    struct stat status {};
    require_usage(root != "-" || ::stat("-", &status) == 0,
                  "standard input (-) cannot be read, since it can be read only once: write it to a file");
    require_input(::stat(path.c_str(), &status) == 0, "{} cannot be read: {}", root,
                  std::generic_category().message(errno));
    if (S_ISDIR(status.st_mode)) {
      list(fs::canonical(path), status, false);
      return;
    }
    require_input(S_ISREG(status.st_mode),
                  "{} is not a regular file, and what can be read only once is not supported: write it to a file",
                  root);
    // The name that was given, in the folder's own name.
    const fs::path absolute = fs::absolute(path);
    add_name(fs::canonical(absolute.parent_path()) / absolute.filename(), status, fs::is_symlink(path));
  }

  /// Call it when all roots are known.
  CorpusFiles result(bool all_records) {
    follow_links();
    CorpusFiles result;
    for (auto& [identity, names] : files_) {
      std::ranges::sort(names, [](const Name& a, const Name& b) {
        return std::tie(a.other_format, a.linked, a.path) < std::tie(b.other_format, b.linked, b.path);
      });
      for (std::size_t i = 1; i < names.size(); ++i) skipped_[names[i].path] = "read under another name";
    }
    std::map<fs::path, CorpusItem> items;
    for (const auto& [identity, names] : files_) {
      if (std::optional<CorpusItem> item = look_at(names[0].path, all_records)) items[names[0].path] = std::move(*item);
    }
    for (auto& [path, item] : items) result.files.push_back(std::move(item));
    for (const auto& [path, why] : skipped_) result.skipped.add(why, path.native());
    std::ranges::sort(like_records_);
    result.like_records = std::move(like_records_);
    return result;
  }

 private:
  using Identity = std::pair<dev_t, ino_t>;
  /// A name of a file. The least one is read, by its members in order.
  struct Name {
    bool other_format, linked;
    fs::path path;
  };

  static Identity identity_of(const struct stat& status) { return {status.st_dev, status.st_ino}; }

  void add_name(const fs::path& path, const struct stat& status, bool linked) {
    std::vector<Name>& names = files_[identity_of(status)];
    if (std::ranges::find(names, path, &Name::path) != names.end()) return;
    names.push_back({.other_format = !is_named_for_records(path), .linked = linked, .path = path});
  }

  /// `linked`: by a link to this folder or to one above it.
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
    std::ranges::sort(paths);  // which name of a folder is found first must not depend on the file system
    for (const fs::path& path : paths) {
      if (path.filename().native().starts_with('.')) {
        skipped_[path] = "hidden";
      } else if (std::error_code gone; fs::is_symlink(path, gone)) {
        links_.push_back(path);
      } else {
        look_at_entry(path, linked);
      }
    }
  }

  void look_at_entry(const fs::path& path, bool linked) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      const bool absent = linked && (errno == ENOENT || errno == ENOTDIR);
      skipped_[path] = errno == ELOOP ? "linked in a circle" : absent ? "linked to nothing" : "not readable";
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

  /// Last of all, so that a folder is listed under its own name if it is found by that. More may be found on the way.
  void follow_links() {
    for (std::size_t i = 0; i < links_.size(); ++i) look_at_entry(fs::path(links_[i]), true);
  }

  /// Nothing if it is skipped.
  std::optional<CorpusItem> look_at(const fs::path& path, bool all_records) {
    std::string beginning(looked_at, '\0');
    TextStream stream(path);
    beginning.resize(stream.read(beginning));
    const bool records = all_records || is_named_for_records(path);
    if (const std::string why = why_unreadable(beginning, records); !why.empty()) {
      skipped_[path] = why;
      return std::nullopt;
    }
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(path, error);
    require_input(!error, "{} cannot be read: {}", path.native(), error.message());
    if (!records && begins_with_record(std::move(beginning), stream)) like_records_.push_back(path);
    return CorpusItem{.kind = records ? CorpusItem::Kind::records : CorpusItem::Kind::text,
                      .document = {path, 0, static_cast<std::int64_t>(bytes)},
                      .compressed = stream.compressed(),
                      .modified = fs::last_write_time(path, error).time_since_epoch().count()};
  }

  std::map<Identity, std::vector<Name>> files_;
  std::map<Identity, fs::path> folders_;  // that are listed, under this name
  std::vector<fs::path> links_;           // below the roots
  std::map<fs::path, std::string> skipped_;
  std::vector<fs::path> like_records_;
};

}  // namespace

bool is_named_for_records(const fs::path& file) {
  const fs::path name = file.filename();
  std::string kind = lower_case_extension(name);
  if (kind == ".gz" || kind == ".gzip" || kind == ".zst" || kind == ".zstd") kind = lower_case_extension(name.stem());
  return kind == ".jsonl" || kind == ".ndjson" || kind == ".jsonlines" || kind == ".ldjson";
}

CorpusFiles find_corpus_files(std::span<const std::string> roots, bool all_records) {
  FileSearch search;
  for (const std::string& root : roots) search.look_at_root(root);
  return search.result(all_records);
}

}  // namespace lyceum
