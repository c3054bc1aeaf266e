#pragma once

#include <filesystem>
#include <functional>

#include "io/files/hdf5.h"

namespace lyceum {

/// Creates or replaces an HDF5 file atomically: calls `fill` to write it under a temporary name, syncs it to the disk,
/// and renames it to `file`. If any of this fails, removes the temporary file and rethrows.
void write_hdf5(const std::filesystem::path& file, const std::function<void(hdf5::File&)>& fill);

}  // namespace lyceum
