#pragma once

#include <filesystem>
#include <string>
#include <string_view>

/// Functions that write files durably and change directory entries atomically. Every failure is a failed Error (exit
/// code 4) that names the path and the system's reason.
namespace lyceum {

/// Creates or truncates a file and writes `text`. Then fsyncs it if `durable`.
void write_file(const std::filesystem::path& path, std::string_view text, bool durable = true);
/// Fsyncs a file or a directory: waits until its data or its entries are on the disk.
void sync_path(const std::filesystem::path& path);
/// Creates a directory and its missing parents, and syncs their entries to the disk. Returns true if `path` was
/// created, false if it already existed.
bool make_directories(const std::filesystem::path& path);
/// Renames a file or directory atomically; replaces `to` if it is a file. Does not fsync the directory.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// Replaces the contents of a file atomically: after a crash it has either its old or its new text. Writes
/// `path`.partial, fsyncs and renames it, and fsyncs the directory. If writing fails, the old file stays as it is and
/// `path`.partial is removed.
void replace_file(const std::filesystem::path& path, std::string_view text);
/// Fsyncs the finished file `fresh`, renames it to `name`, which it replaces, and fsyncs the directory.
void publish_file(const std::filesystem::path& fresh, const std::filesystem::path& name);
/// Renames the finished directory `fresh` to `name`, and replaces a directory of that name. Returns the new path of the
/// replaced directory, which the caller should remove after syncing the parent; or an empty path. If it throws, `fresh`
/// has not been published. On file systems that can exchange two names (ext4, xfs, btrfs, tmpfs), `name` always exists
/// during the replacement. On others a crash between two renamings leaves the old directory as `name`.replaced.
std::filesystem::path publish_directory(const std::filesystem::path& fresh, const std::filesystem::path& name);

}  // namespace lyceum
