#include "io/files/system_reason.h"

#include <cerrno>

namespace lyceum {

std::string system_reason(int error) {
  const std::string reason = std::generic_category().message(error);
  switch (error) {
    case EMFILE: return reason + " (the limit of a process: ulimit -n)";
    case ENFILE: return reason + " (the limit of this machine: fs.file-max)";
    case EFBIG: return reason + " (the limit of a file: ulimit -f, or the file system's)";
    case ENOSPC: return reason + " (space or inodes: df, df -i)";
    case ELOOP: return "it is a symbolic link, which is not followed here, or part of a cycle of links";
    case ENXIO: return "it is not a regular file, but a FIFO, a device or a socket";
    default: return reason;
  }
}

std::string system_reason(const std::error_code& error) {
  return error.category() == std::generic_category() || error.category() == std::system_category()
             ? system_reason(error.value())
             : error.message();
}

}  // namespace lyceum
