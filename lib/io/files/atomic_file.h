#pragma once

#include <filesystem>
#include <string>
#include <string_view>

/// Files that are on the disk when a call returns, and directory entries that change all at once. Every failure is an
/// Error (exit code 4) that names the path and the system's reason.
namespace lyceum {

/// Creates or truncates, writes, and unless that is not wanted, fsyncs.
void write_file(const std::filesystem::path& path, std::string_view text, bool durable = true);
/// The whole file; a bad_input Error that names it when it cannot be read.
std::string read_file(const std::filesystem::path& path);
/// Waits until the data of a file, or the entries of a directory, are on the disk.
void sync_path(const std::filesystem::path& path);
/// Makes a directory and those above it that are missing, entries on the disk. Returns whether this one was made.
bool make_directories(const std::filesystem::path& path);
/// Atomic: `to` is replaced when it is a file. Does not fsync the directory.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// `path` holds either its old text or the new one, whatever happens: write next to it, fsync, rename, fsync.
void replace_file(const std::filesystem::path& path, std::string_view text);
/// Makes the finished directory `fresh` appear as `name`; it throws only while that has not happened. Returns where a
/// directory that it replaced is now, to be removed once the parent is synced, or an empty path. On file systems that
/// can swap two names (ext4, xfs, btrfs, tmpfs) there is always one of the two under `name`; elsewhere a crash between
/// two renames leaves the old one as `name.replaced`.
std::filesystem::path publish_directory(const std::filesystem::path& fresh, const std::filesystem::path& name);

}  // namespace lyceum
