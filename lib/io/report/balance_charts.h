#pragma once

#include "io/routing/history.h"

namespace lyceum {

/// MaxVio and entropy of each record over training: the mean of the layers and the worst of them.
std::string evenness_over_training(const RoutingHistory& routing);
/// MaxVio and idle experts of single steps over training; empty if the log does not have them.
std::string steps_over_training(const RoutingHistory& routing);
/// The share of choices beyond the capacity of experts over training; empty if that is not limited.
std::string dropped_over_training(const RoutingHistory& routing);

}  // namespace lyceum
