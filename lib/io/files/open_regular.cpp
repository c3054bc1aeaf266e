#include "io/files/open_regular.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "io/files/uninterrupted.h"

namespace lyceum {

int open_regular(const std::filesystem::path& path, int flags, Links links) {
  const int all = flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (links == Links::refused ? O_NOFOLLOW : 0);
  const int descriptor = uninterrupted([&] { return ::open(path.c_str(), all, 0666); });
  if (descriptor < 0) return descriptor;
  struct stat status {};
  int error = fstat(descriptor, &status) == 0 ? 0 : errno;
  if (error == 0 && !S_ISREG(status.st_mode)) error = S_ISDIR(status.st_mode) ? EISDIR : ENXIO;
  if (error == 0) return descriptor;
  ::close(descriptor);
  errno = error;
  return -1;
}

std::ifstream open_to_read(const std::filesystem::path& path) {
  std::ifstream stream;
  const int descriptor = open_regular(path, O_RDONLY, Links::followed);
  if (descriptor < 0) {
    stream.setstate(std::ios::failbit);
    return stream;
  }
  // This path refers to the opened file, even if its name refers to another one by now.
  const std::string name = "/proc/self/fd/" + std::to_string(descriptor);
  do {
    errno = 0;
    stream.open(name, std::ios::binary);
  } while (!stream.is_open() && errno == EINTR);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return stream;
}

}  // namespace lyceum
