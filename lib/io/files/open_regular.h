#pragma once

#include <filesystem>
#include <fstream>

namespace lyceum {

/// The treatment of a symbolic link that is the last component of a path: open_regular() refuses or follows it. Links
/// to folders above it are always followed.
enum class Links { refused, followed };

/// Opens a regular file as open(2) does, with O_CLOEXEC and mode 0666. Returns its descriptor, or -1 with the reason in
/// errno: ELOOP for a refused link, ENXIO for a FIFO, device or socket, EISDIR for a folder. Never waits for the other
/// end of a FIFO. Files to write should be opened with Links::refused: otherwise users who may write to the folder
/// could make the name refer to any file of this user.
int open_regular(const std::filesystem::path& path, int flags, Links links);

/// Opens a regular file for reading and follows links. If it cannot be opened, the stream is not good() and errno has
/// the reason.
std::ifstream open_to_read(const std::filesystem::path& path);

}  // namespace lyceum
