#include "io/data/corpus_files.h"

#include <unistd.h>

#include <map>
#include <system_error>

#include "core/error.h"
#include "io/files/text_stream.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t looked_at = 8192;  // bytes of a file that decide whether it is text

/// Why a file that begins so is no text; "" when it may be one. Of records each is looked at by itself.
std::string why_no_text(std::string_view beginning, bool records) {
  if (beginning.empty()) return "empty";
  if (beginning.find('\0') != std::string_view::npos) return "binary";
  return records || looks_like_text(beginning) ? "" : "not UTF-8";
}

class FileSearch {
 public:
  explicit FileSearch(bool json) : json_(json) {}

  void look_at(const fs::path& path) {
    if (found_.contains(path)) return;
    std::string beginning(looked_at, '\0');
    TextStream stream(path);
    beginning.resize(stream.read(beginning));
    const bool records = holds_records(path, json_);
    if (const std::string why = why_no_text(beginning, records); !why.empty()) {
      skipped_[path] = why;
      return;
    }
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(path, error);
    require_input(!error, "{} cannot be read: {}", path.native(), error.message());
    found_[path] = {.kind = records ? CorpusItem::Kind::records : CorpusItem::Kind::text,
                    .document = {path, 0, static_cast<std::int64_t>(bytes)},
                    .compressed = stream.compressed(),
                    .modified = fs::last_write_time(path, error).time_since_epoch().count()};
  }

  void look_below(const fs::path& folder, const std::string& root) {
    std::error_code error;
    // Links are never followed below a root: their targets are found themselves, or lie outside.
    fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      std::error_code unreadable;
      if (entry->is_symlink(unreadable) || !entry->is_regular_file(unreadable)) continue;
      if (::access(entry->path().c_str(), R_OK) == 0) {
        look_at(entry->path());
      } else {  // not ours to read, or gone since the folder was listed
        skipped_[entry->path()] = "not readable";
      }
    }
    require_input(!error, "cannot list the files under {}: {}", root, error.message());
  }

  CorpusFiles result() const {
    CorpusFiles all;
    for (const auto& [path, file] : found_) all.files.push_back(file);
    for (const auto& [path, why] : skipped_) all.skipped.add(why, path.native());
    return all;
  }

 private:
  bool json_;
  std::map<fs::path, CorpusItem> found_;  // canonical, so that overlapping roots give a file once
  std::map<fs::path, std::string> skipped_;
};

}  // namespace

bool holds_records(const fs::path& file, bool json) {
  const fs::path name = file.filename();
  const fs::path kind =
      name.extension() == ".gz" || name.extension() == ".zst" ? name.stem().extension() : name.extension();
  return kind == ".jsonl" || kind == ".ndjson" || (json && kind == ".json");
}

CorpusFiles find_corpus_files(std::span<const std::string> roots, bool json) {
  FileSearch search(json);
  for (const std::string& root : roots) {
    std::error_code error;
    const fs::path top = fs::canonical(root, error);
    require_input(!error, "{} cannot be read: {}", root, error.message());
    if (fs::is_directory(top)) {
      search.look_below(top, root);
    } else {
      search.look_at(top);
    }
  }
  return search.result();
}

}  // namespace lyceum
