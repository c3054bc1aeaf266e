#pragma once

#include <cstdint>
#include <string_view>

namespace lyceum::hdf5 {

/// Returns the checksum of metadata in HDF5 files: hashlittle() of lookup3 with initial value 0 [Jenkins 2006, in the
/// public domain].
std::uint32_t checksum(std::string_view bytes);

}  // namespace lyceum::hdf5
