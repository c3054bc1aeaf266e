#include "io/files/journaled_hdf5.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/journal.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

namespace lyceum {
namespace {

/// Owns a file descriptor.
class OpenedFile {
 public:
  explicit OpenedFile(int value) : value_(value) {}
  ~OpenedFile() {
    if (value_ >= 0) ::close(value_);
  }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
  int value() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

std::filesystem::path parent_of(const std::filesystem::path& file) {
  return std::filesystem::absolute(file).parent_path();
}

std::int64_t file_bytes(const std::filesystem::path& file) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  require(!error, "{}: cannot be written: {}", file.string(), system_reason(error));
  return static_cast<std::int64_t>(size);
}

/// True if another process holds a lock that excludes this one.
bool locked_by_others(int descriptor, int kind) {
  return uninterrupted([&] { return flock(descriptor, kind | LOCK_NB); }) != 0 && errno == EWOULDBLOCK;
}

/// True if the name still refers to the opened file.
bool has_name(int descriptor, const std::filesystem::path& file) {
  struct stat opened {
  }, named{};
  return fstat(descriptor, &opened) == 0 && stat(file.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace

std::filesystem::path JournaledHdf5::journal_of(const std::filesystem::path& file) {
  return file.parent_path() / ("." + file.filename().string() + ".journal");
}

void JournaledHdf5::discard_journal(const std::filesystem::path& file) {
  std::error_code error;
  const bool removed = std::filesystem::remove(journal_of(file), error);
  require(!error, "{}: cannot be removed: {}", journal_of(file).string(), system_reason(error));
  if (removed) sync_path(parent_of(file));
}

JournaledHdf5::JournaledHdf5(std::filesystem::path file)
    : file_(std::move(file)), postponed_(read_journal(journal_of(file_), file_)) {
  if (!postponed_) {
    discard_journal(file_);
    return;
  }
  if (!settle()) postponed_->extend(file_bytes(file_));
}

JournaledHdf5::~JournaledHdf5() {
  try {
    settle();
  } catch (const Error&) {  // the journal stays, and the next start completes the change
  }
}

void JournaledHdf5::edit(const std::function<void(hdf5::File&)>& change) {
  const std::int64_t size = file_bytes(file_);
  const auto held = postponed_ ? std::make_shared<HeldWrites>(*postponed_) : std::make_shared<HeldWrites>();
  held->extend(size);
  try {
    hdf5::File file = hdf5::File::edit(file_, held);
    change(file);
    file.close();
    sync_path(file_);
    write_journal(journal_of(file_), file_, *held);
  } catch (...) {
    std::error_code ignored;  // if this fails, the next change overwrites what was written after the file's end
    if (std::filesystem::file_size(file_, ignored) > static_cast<std::uintmax_t>(size) && !ignored) {
      std::filesystem::resize_file(file_, static_cast<std::uintmax_t>(size), ignored);
    }
    throw;
  }
  postponed_ = held;
}

bool JournaledHdf5::settle() {
  if (!postponed_) return true;
  sync_path(parent_of(file_));
  const OpenedFile file(open_regular(file_, O_RDWR, Links::refused));
  const auto require_done = [&](bool done) {
    require(done, "{}: cannot be written: {}", file_.string(), system_reason(errno));
  };
  require_done(file.value() >= 0);
  if (locked_by_others(file.value(), LOCK_EX)) return false;
  require_done(write_changes(file.value(), *postponed_));
  flock(file.value(), LOCK_UN);
  require_done(uninterrupted([&] { return fsync(file.value()); }) == 0);
  std::error_code error;  // a journal that stays is written again, to the same effect
  std::filesystem::remove(journal_of(file_), error);
  postponed_.reset();
  return true;
}

SharedHdf5::~SharedHdf5() { ::close(lock_); }

std::unique_ptr<SharedHdf5> open_journaled(const std::filesystem::path& file) {
  using namespace std::chrono_literals;
  constexpr int most_tries = 5000;  // a writer holds its lock for about a millisecond
  for (int tries = 1;; ++tries) {
    OpenedFile lock(open_regular(file, O_RDONLY, Links::followed));
    require_input(lock.value() >= 0, "{} cannot be opened: {}", file.string(), system_reason(errno));
    if (locked_by_others(lock.value(), LOCK_SH) || !has_name(lock.value(), file)) {
      require(tries < most_tries, "{}: another process has locked it for {} seconds: close it there", file.string(),
              most_tries / 1000);
      std::this_thread::sleep_for(1ms);
      continue;
    }
    hdf5::File opened = hdf5::File::open(file, read_journal(JournaledHdf5::journal_of(file), file));
    return std::make_unique<SharedHdf5>(lock.release(), std::move(opened));
  }
}

}  // namespace lyceum
