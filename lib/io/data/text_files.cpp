#include <algorithm>
#include <set>
#include <system_error>

#include "core/error.h"
#include "io/data/tokenizer.h"
#include "io/files/whole_file.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t looked_at = 8192;  // bytes of a file that decide whether it is text

bool is_text_file(const fs::path& file) {
  try {
    return looks_like_text(read_part_of_file(file, 0, looked_at));
  } catch (const Error&) {
    return false;  // not ours to read, or gone since the folder was listed
  }
}

}  // namespace

std::vector<fs::path> find_text_files(std::span<const std::string> roots) {
  std::set<fs::path> found;  // canonical, so that overlapping roots give a file once
  for (const std::string& root : roots) {
    std::error_code error;
    const fs::path top = fs::canonical(root, error);
    require_input(!error, "{} cannot be read: {}", root, error.message());
    if (!fs::is_directory(top)) {
      const std::string beginning = read_part_of_file(top, 0, looked_at);
      if (looks_like_text(beginning)) found.insert(top);
      continue;
    }
    // Links are never followed below a root: their targets are found themselves, or lie outside.
    fs::recursive_directory_iterator entry(top, fs::directory_options::skip_permission_denied, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      std::error_code unreadable;
      if (entry->is_symlink(unreadable) || !entry->is_regular_file(unreadable)) continue;
      if (is_text_file(entry->path())) found.insert(entry->path());
    }
    require_input(!error, "the files under {} cannot be listed: {}", root, error.message());
  }
  return {found.begin(), found.end()};
}

}  // namespace lyceum
