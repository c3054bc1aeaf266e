#include "io/run/lock_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <thread>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

namespace lyceum {

LockFile::LockFile(const std::filesystem::path& path, bool create) : path_(path) {
  descriptor_ = open_regular(path, O_RDWR | (create ? O_CREAT : 0), Links::refused);
  error_ = descriptor_ < 0 ? errno : 0;
  require(descriptor_ >= 0 || !create || is_gone(), "{}: cannot open: {}", path.string(), system_reason(error_));
}
LockFile::~LockFile() {
  if (descriptor_ >= 0) close(descriptor_);  // releases the guard too
}

bool LockFile::is_gone() const { return error_ == ENOENT; }

/// Makes a system call and returns its result; throws with the system's reason if it fails.
template <class Call>
std::int64_t LockFile::persist(const char* action, const Call& call) const {
  const std::int64_t result = uninterrupted(call);
  const int reason = errno;
  require(result >= 0, "{}: cannot {}: {}", path_.string(), action, system_reason(reason));
  return result;
}

bool LockFile::guard() const {
  for (int attempt = 0;; ++attempt) {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (fcntl(descriptor_, F_OFD_SETLK, &whole) == 0) break;
    // Other errors mean that the file system has no locks, so the time stamps must suffice.
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) break;
    require(attempt < 1000, "{}: another process keeps it locked: check for a stopped process that has it open",
            path_.string());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  struct stat here {
  }, there{};
  return fstat(descriptor_, &here) == 0 && stat(path_.c_str(), &there) == 0 && here.st_ino == there.st_ino;
}

std::string LockFile::text() const {
  std::string text(4096, '\0');
  const auto got = persist("read", [&] { return pread(descriptor_, text.data(), text.size(), 0); });
  text.resize(static_cast<std::size_t>(got));
  return text;
}

void LockFile::write(const std::string& text) const {
  persist("write", [&] { return ftruncate(descriptor_, 0); });
  for (std::size_t done = 0; done < text.size();) {
    const auto put = persist(
        "write", [&] { return pwrite(descriptor_, text.data() + done, text.size() - done, static_cast<off_t>(done)); });
    require(put > 0, "{}: cannot write: the system accepted no bytes", path_.string());
    done += static_cast<std::size_t>(put);
  }
  persist("write to disk", [&] { return fsync(descriptor_); });
}

void LockFile::touch() const { futimens(descriptor_, nullptr); }

std::pair<std::int64_t, std::int64_t> LockFile::time_stamp() const {
  struct stat status {};
  fstat(descriptor_, &status);
  return {status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace lyceum
