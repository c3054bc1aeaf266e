#pragma once

#include <filesystem>
#include <functional>

#include "io/files/hdf5.h"

namespace lyceum {

/// Makes or replaces an HDF5 file that appears under its name when `fill` has written all of it and it is on the disk.
/// Where that fails, nothing is left behind.
void write_hdf5(const std::filesystem::path& file, const std::function<void(hdf5::File&)>& fill);

}  // namespace lyceum
