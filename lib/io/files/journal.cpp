#include "io/files/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/open_regular.h"
#include "io/files/sha256.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"
#include "io/files/whole_file.h"

// A journal: JournalHeader, then a StoredPage for each changed page, then the SHA-256 of all that as 64 digits.

namespace lyceum {
namespace {

constexpr std::string_view journal_magic = "lyceum journal 1";
constexpr std::size_t digest_digits = 64, page_digits = 16;

struct JournalHeader {
  char magic[16];
  std::int64_t end, pages;  // the size of the file with the changes; the number of pages
  std::int64_t size;        // that of the file on the disk, with what was appended, without the changes
};
static_assert(sizeof(JournalHeader) == 40);

struct StoredPage {
  std::int64_t index;
  char before[page_digits];  // the first digits of the SHA-256 of the page on the disk
  HeldWrites::Page bytes;
};
static_assert(sizeof(StoredPage) == 24 + HeldWrites::page_bytes);

template <class T>
std::string_view raw_bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// Returns the number of bytes of a page that are in a file of size `end`.
std::size_t bytes_before(std::int64_t end, std::int64_t index) {
  return static_cast<std::size_t>(
      std::clamp<std::int64_t>(end - index * HeldWrites::page_bytes, 0, HeldWrites::page_bytes));
}

std::string digest_of_page(const HeldWrites::Page& page) { return sha256(raw_bytes_of(page)).substr(0, page_digits); }

/// A file that is open for reading.
class OpenedPages {
 public:
  explicit OpenedPages(const std::filesystem::path& file) : value_(open_regular(file, O_RDONLY, Links::followed)) {}
  ~OpenedPages() {
    if (value_ >= 0) ::close(value_);
  }
  OpenedPages(const OpenedPages&) = delete;
  OpenedPages& operator=(const OpenedPages&) = delete;
  bool read(std::int64_t index, HeldWrites::Page& page) const {
    return value_ >= 0 && HeldWrites::read_page(value_, index, page);
  }
  /// Returns the size of the file in bytes; −1, with the reason in errno, if it is not open.
  std::int64_t size() const { return value_ >= 0 ? lseek(value_, 0, SEEK_END) : -1; }

 private:
  int value_;
};

}  // namespace

void write_journal(const std::filesystem::path& journal, const std::filesystem::path& file, const HeldWrites& changes) {
  const OpenedPages opened(file);
  JournalHeader header{.magic = {}, .end = changes.end, .pages = 0, .size = opened.size()};
  journal_magic.copy(header.magic, sizeof header.magic);
  std::string text(raw_bytes_of(header));
  text.reserve(text.size() + changes.pages().size() * sizeof(StoredPage) + digest_digits);
  for (const auto& [index, bytes] : changes.pages()) {
    if (bytes_before(changes.end, index) == 0) break;  // the file has become shorter
    StoredPage stored{.index = index, .before = {}, .bytes = bytes};
    HeldWrites::Page before;
    require(opened.read(index, before), "{}: cannot be read: {}", file.string(), system_reason(errno));
    digest_of_page(before).copy(stored.before, page_digits);
    text += raw_bytes_of(stored);
    ++header.pages;
  }
  text.replace(0, sizeof header, raw_bytes_of(header));
  text += sha256(text);
  std::filesystem::path partial = journal;
  partial += ".partial";
  std::error_code ignored;  // whatever has this name is not ours; if it cannot be removed, writing reports it
  std::filesystem::remove(partial, ignored);
  try {
    write_file(partial, text);
    rename_path(partial, journal);
  } catch (const Error&) {
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

std::shared_ptr<HeldWrites> read_journal(const std::filesystem::path& journal, const std::filesystem::path& file) {
  std::error_code error;
  const auto type = std::filesystem::symlink_status(journal, error).type();
  require(type != std::filesystem::file_type::none, "{}: cannot be read: {}", journal.string(), system_reason(error));
  if (type != std::filesystem::file_type::regular) return nullptr;
  std::string text;
  try {
    text = read_whole_file(journal);
  } catch (const Error& failure) {
    if (!std::filesystem::exists(journal, error) && !error) return nullptr;  // it has just been removed
    fail(ExitCode::failed, "{}", failure.what());
  }
  JournalHeader header{};
  if (text.size() < sizeof header + digest_digits) return nullptr;
  const std::string digest = text.substr(text.size() - digest_digits);
  text.resize(text.size() - digest_digits);
  std::memcpy(&header, text.data(), sizeof header);
  const std::string_view pages = std::string_view(text).substr(sizeof header);
  if (std::string_view(header.magic, sizeof header.magic) != journal_magic || sha256(text) != digest ||
      header.pages < 0 || pages.size() != static_cast<std::size_t>(header.pages) * sizeof(StoredPage)) {
    return nullptr;
  }
  const OpenedPages opened(file);
  const std::int64_t size = opened.size();
  require(size >= 0, "{}: cannot be read: {}", file.string(), system_reason(errno));
  if (size < std::min(header.size, header.end)) return nullptr;  // what was appended is missing
  auto changes = std::make_shared<HeldWrites>(header.end);
  changes->end = header.end;
  for (std::size_t at = 0; at < pages.size(); at += sizeof(StoredPage)) {
    StoredPage stored;
    std::memcpy(&stored, pages.data() + at, sizeof stored);
    HeldWrites::Page page;
    require(opened.read(stored.index, page), "{}: cannot be read: {}", file.string(), system_reason(errno));
    const bool written =
        std::equal(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(bytes_before(header.end, stored.index)),
                   stored.bytes.begin());
    if (!written && digest_of_page(page) != std::string_view(stored.before, page_digits)) return nullptr;
    changes->add(stored.index, stored.bytes);
  }
  return changes;
}

bool write_changes(int descriptor, const HeldWrites& changes) {
  const auto& pages = changes.pages();
  for (auto page = pages.begin(); page != pages.end();) {
    const std::int64_t first = page->first;
    std::string run;  // neighbouring pages, as far as the file reaches
    for (; page != pages.end() && page->first == first + std::ssize(run) / HeldWrites::page_bytes; ++page) {
      const std::size_t count = bytes_before(changes.end, page->first);
      run.append(reinterpret_cast<const char*>(page->second.data()), count);
      if (count == page->second.size()) continue;
      page = pages.end();
      break;
    }
    for (std::size_t done = 0; done < run.size();) {
      const off_t at = first * HeldWrites::page_bytes + static_cast<off_t>(done);
      const ssize_t put = uninterrupted([&] { return pwrite(descriptor, run.data() + done, run.size() - done, at); });
      if (put == 0) errno = EIO;
      if (put <= 0) return false;
      done += static_cast<std::size_t>(put);
    }
  }
  return uninterrupted([&] { return ftruncate(descriptor, changes.end); }) == 0;
}

}  // namespace lyceum
