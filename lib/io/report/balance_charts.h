#pragma once

#include "io/routing/history.h"

namespace lyceum {

/// Returns two charts over training, of MaxVio and of the entropy of each record's sum: the mean and the worst of the
/// layers.
std::string evenness_over_training(const RoutingHistory& routing);
/// Returns two charts of MaxVio and idle experts of single steps over training; empty if the log does not have them.
std::string steps_over_training(const RoutingHistory& routing);
/// Returns a chart of the share of choices that exceeded the capacity of their expert; empty if capacity is not
/// limited.
std::string dropped_over_training(const RoutingHistory& routing);

}  // namespace lyceum
