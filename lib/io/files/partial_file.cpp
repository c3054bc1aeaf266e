#include "io/files/partial_file.h"

#include <fcntl.h>
#include <sys/file.h>
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

PartialFile::PartialFile(std::string path, std::int64_t bytes)
    : path_(std::move(path)), partial_(name_of(path_)), kept_(bytes > 0) {
  const int descriptor = open_regular(partial_, O_RDWR | O_CREAT, Links::refused);
  check(descriptor >= 0);
  const bool alone = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  if (alone) file_ = ::fdopen(descriptor, "r+b");
  if (file_ == nullptr) ::close(descriptor);
  require(alone, "{} cannot be written: another process is writing it", path_);
  check(file_ != nullptr);
  check(::ftruncate(descriptor, bytes) == 0 && std::fseek(file_, 0, SEEK_END) == 0);
}

PartialFile::~PartialFile() {
  if (file_ != nullptr) std::fclose(file_);
  std::error_code ignored;
  if (!kept_) std::filesystem::remove(partial_, ignored);
}

void PartialFile::write(const void* data, std::size_t bytes) {
  if (bytes > 0) check(std::fwrite(data, 1, bytes, file_) == bytes);  // `data` may be null if there are no bytes
}

void PartialFile::read(std::int64_t at, void* data, std::size_t bytes) {
  check(uninterrupted([&] { return ::pread(fileno(file_), data, bytes, at); }) == static_cast<ssize_t>(bytes));
}

void PartialFile::sync() {
  check(std::fflush(file_) == 0 && uninterrupted([&] { return ::fsync(fileno(file_)); }) == 0);
}

void PartialFile::save() {
  sync();
  kept_ = true;
}

void PartialFile::close() {
  sync();
  std::FILE* const file = std::exchange(file_, nullptr);
  check(std::fclose(file) == 0);
}

void PartialFile::publish() const { check(std::rename(partial_.c_str(), path_.c_str()) == 0); }

void PartialFile::check(bool done) const { require(done, "{} cannot be written: {}", path_, system_reason(errno)); }

}  // namespace lyceum
