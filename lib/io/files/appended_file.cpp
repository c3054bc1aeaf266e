#include "io/files/appended_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

namespace lyceum {

AppendedFile::AppendedFile(std::filesystem::path path, std::int64_t size) : path_(std::move(path)), size_(size) {
  descriptor_ = open_regular(path_, O_WRONLY | O_CREAT | O_APPEND, Links::refused);
  require(descriptor_ >= 0, "{}: cannot be opened for writing: {}", path_.string(), system_reason(errno));
  if (uninterrupted([&] { return ::ftruncate(descriptor_, size_); }) != 0) {
    const int reason = errno;
    ::close(descriptor_);
    fail(ExitCode::failed, "{}: cannot be truncated to {} bytes: {}", path_.string(), size_, system_reason(reason));
  }
}

AppendedFile::~AppendedFile() { ::close(descriptor_); }

void AppendedFile::append(std::string_view record) {
  waiting_ += record;
  write_waiting();
}

void AppendedFile::write_waiting() {
  for (std::size_t done = 0; done < waiting_.size();) {
    const ssize_t written =
        uninterrupted([&] { return ::write(descriptor_, waiting_.data() + done, waiting_.size() - done); });
    if (written < 0) {
      const int reason = errno;
      const bool whole = uninterrupted([&] { return ::ftruncate(descriptor_, size_); }) == 0;
      fail(ExitCode::failed, "{}: cannot be written{}: {}", path_.string(),
           whole ? "" : " (its last record is incomplete)", system_reason(reason));
    }
    done += static_cast<std::size_t>(written);
  }
  size_ += static_cast<std::int64_t>(waiting_.size());
  waiting_.clear();
}

void AppendedFile::sync() {
  write_waiting();
  const int reason = uninterrupted([&] { return ::fsync(descriptor_); }) == 0 ? 0 : errno;
  require(reason == 0, "{}: cannot be written to disk: {}", path_.string(), system_reason(reason));
}

}  // namespace lyceum
