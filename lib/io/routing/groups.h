#pragma once

#include <string>
#include <vector>

#include "io/files/hdf5.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// Where a log keeps what one router did: /layers/LLL with the layer's index in three digits for the FFN's,
/// /layers/LLL/attention for the attention's.
std::string group_of(const MixtureId& id);

/// The routers that a log has groups for, in the order of forward. Throws a bad_input Error for groups of other names.
std::vector<MixtureId> routers_in(const hdf5::File& file);

/// A scale 0, 1, … count − 1.
hdf5::Dataset create_scale(hdf5::File& file, const std::string& path, std::int64_t count, const std::string& name);

}  // namespace lyceum
