#pragma once

#include <string>
#include <vector>

#include "io/files/hdf5.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// Returns the HDF5 group of a router in a log: /layers/LLL for an FFN, /layers/LLL/attention for attention, where LLL
/// is the layer's index with at least three digits.
std::string group_of(const MixtureId& id);

/// Returns the routers that a log has groups for, in forward order. Throws a bad_input Error if a group has another
/// name.
std::vector<MixtureId> routers_in(const hdf5::File& file);

/// Creates a dimension scale called `name` with the values 0, 1, …, count − 1.
hdf5::Dataset create_scale(hdf5::File& file, const std::string& path, std::int64_t count, const std::string& name);

}  // namespace lyceum
