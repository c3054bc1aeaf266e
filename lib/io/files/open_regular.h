#pragma once

#include <filesystem>
#include <fstream>

namespace lyceum {

/// Decides if open_regular() follows a symbolic link that is the last part of a path. Folders above it may always be
/// links.
enum class Links { refused, followed };

/// Opens a regular file as open(2) does, with O_CLOEXEC and mode 0666, and returns its descriptor; or -1 with the
/// reason in errno: ELOOP for a link that is refused, ENXIO for a FIFO, device or socket, EISDIR for a folder. Never
/// waits for the other end of a FIFO. Files to write are opened with Links::refused: others who may write to their
/// folder could otherwise point the name at any file of the user.
int open_regular(const std::filesystem::path& path, int flags, Links links);

/// Opens a regular file for reading, links followed. If it cannot be opened, the stream is not good() and errno has
/// the reason.
std::ifstream open_to_read(const std::filesystem::path& path);

}  // namespace lyceum
