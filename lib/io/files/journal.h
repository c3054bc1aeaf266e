#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "io/files/held_writes.h"

namespace lyceum {

/// Replaces the journal of a file atomically: the changed pages, and digests of what the file has on the disk instead
/// of them, by which the journal is recognised as one of this file and this state. Its data is on the disk then, but
/// its name only after the folder is synced. Throws a failed Error; the old journal then stays.
void write_journal(const std::filesystem::path& journal, const std::filesystem::path& file, const HeldWrites& changes);

/// Reads the journal of a file. Returns null if there is none, or if it is incomplete or not for the file's present
/// state. A journal that has been written into the file, wholly or in part, is still for its state. Throws a failed
/// Error if one of them cannot be read: the journal may then be needed.
std::shared_ptr<HeldWrites> read_journal(const std::filesystem::path& journal, const std::filesystem::path& file);

/// Writes the changes into the file whose descriptor is given, with its new size. Does not sync. Returns false, with
/// the reason in errno, if that fails.
bool write_changes(int descriptor, const HeldWrites& changes);

}  // namespace lyceum
