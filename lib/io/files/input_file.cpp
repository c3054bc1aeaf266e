#include "io/files/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"

namespace lyceum {

namespace {

std::int64_t size_of(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 ? status.st_size : 0;
}

}  // namespace

InputFile::InputFile(std::string path, const std::string& advice)
    : path_(std::move(path)), descriptor_(open_regular(path_, O_RDONLY, Links::followed)) {
  require_input(descriptor_ >= 0, "{} cannot be opened: {}; {}", path_, system_reason(errno), advice);
  size_ = static_cast<std::uint64_t>(size_of(descriptor_));
}

InputFile::~InputFile() { close(descriptor_); }

void InputFile::read(std::uint64_t at, std::span<std::byte> out) const {
  require(at <= size_ && out.size() <= size_ - at, "bytes {} to {} are not in {}, which has {}", at, at + out.size(),
          path_, size_);
  const std::uint64_t first = at, end = at + out.size();
  while (!out.empty()) {
    const ssize_t got =
        uninterrupted([&] { return pread(descriptor_, out.data(), out.size(), static_cast<off_t>(at)); });
    require(got >= 0, "{}: bytes {} to {} cannot be read: {}", path_, first, end, system_reason(errno));
    require_input(
        got > 0,
        "{}: bytes {} to {} are missing: the file has {} bytes now, but had {} when it was opened; restore it "
        "and run the same command again",
        path_, first, end, size_of(descriptor_), size_);
    at += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace lyceum
