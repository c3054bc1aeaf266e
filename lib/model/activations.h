#pragma once

#include <cstdint>

#include "io/config.h"

namespace lyceum {

/// Bytes that forward through block `layer` of a resolved configuration keeps for backward on each rank, for a token of
/// its batch, as model.recompute says. Routing is taken as even; rows that fill up experts' segments and what balance
/// losses keep are not counted.
double kept_bytes_per_token(const Config& config, std::int64_t layer);

}  // namespace lyceum
