#pragma once

#include <cstdint>

#include "config/feature.h"
#include "config/optim.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// Returns the largest number of rows that a router of this half of a block has: its experts, or its sub-dimensions if
/// some of them are chosen. 0 without such a router.
std::int64_t router_rows(const Config& config, Site site);
/// Returns the first row that optim.router_penalty applies to in the routers of this half.
std::int64_t first_penalised_row(const OptimConfig& optim, Site site);
/// Checks that routers have the rows to which optim.router_penalty applies.
void check_router_penalty(Findings& findings, const Config& config);

}  // namespace lyceum
