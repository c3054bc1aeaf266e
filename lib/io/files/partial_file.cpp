#include "io/files/partial_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

namespace lyceum {

namespace {

/// True if `path` is the name of the open file.
bool names(const std::string& path, int descriptor) {
  struct stat named {
  }, opened{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && named.st_dev == opened.st_dev &&
         named.st_ino == opened.st_ino;
}

}  // namespace

PartialFile::PartialFile(std::string path, Unopened state)
    : path_(std::move(path)), partial_(name_of(path_)), kept_(state.kept) {}

PartialFile::PartialFile(std::string path, std::int64_t bytes) : PartialFile(std::move(path), Unopened{bytes > 0}) {
  require(open(bytes), "{} cannot be written: another process is writing it", path_);
}

std::unique_ptr<PartialFile> PartialFile::open_unless_busy(const std::string& path) {
  std::unique_ptr<PartialFile> file(new PartialFile(path, Unopened{false}));
  if (!file->open(0)) file.reset();
  return file;
}

bool PartialFile::open(std::int64_t bytes) {
  for (;;) {
    const int descriptor = open_regular(partial_, O_RDWR | O_CREAT, Links::refused);
    check(descriptor >= 0);
    const bool alone = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    // Another process may have renamed or removed the file between the two calls. The next attempt opens a new file.
    const bool renamed = alone && !names(partial_, descriptor);
    if (alone && !renamed) file_ = ::fdopen(descriptor, "r+b");
    const int error = errno;
    if (file_ == nullptr) ::close(descriptor);
    if (renamed) continue;
    errno = error;
    if (!alone && error == EWOULDBLOCK) return false;
    check(file_ != nullptr);
    check(::ftruncate(descriptor, bytes) == 0 && std::fseek(file_, 0, SEEK_END) == 0);
    return true;
  }
}

PartialFile::~PartialFile() {
  // The file is removed before it is closed, since another process may lock it once it is closed.
  std::error_code ignored;
  if (file_ != nullptr && !kept_) std::filesystem::remove(partial_, ignored);
  if (file_ != nullptr) std::fclose(file_);
}

void PartialFile::write(const void* data, std::size_t bytes) {
  if (bytes > 0) check(std::fwrite(data, 1, bytes, file_) == bytes);  // `data` may be null if there are no bytes
}

void PartialFile::read(std::int64_t at, void* data, std::size_t bytes) {
  check(uninterrupted([&] { return ::pread(fileno(file_), data, bytes, at); }) == static_cast<ssize_t>(bytes));
}

void PartialFile::flush() { check(std::fflush(file_) == 0); }

void PartialFile::sync() {
  check(std::fflush(file_) == 0 && uninterrupted([&] { return ::fsync(fileno(file_)); }) == 0);
}

void PartialFile::save() {
  sync();
  kept_ = true;
}

void PartialFile::close() { sync(); }

void PartialFile::publish() {
  check(std::rename(partial_.c_str(), path_.c_str()) == 0);
  std::fclose(std::exchange(file_, nullptr));  // sync() has reported errors of writing
}

void PartialFile::check(bool done) const { require(done, "{} cannot be written: {}", path_, system_reason(errno)); }

}  // namespace lyceum
