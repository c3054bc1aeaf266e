#pragma once

#include "io/report/digest.h"

namespace lyceum {

/// Returns two charts over training, of MaxVio and of the entropy of each record's sum: the mean and the worst of the
/// layers.
std::string evenness_over_training(const RoutingDigest& routing);
/// Returns the HTML of two charts of single steps over training, side by side: MaxVio, and the share of idle experts.
/// Each shows the mean over steps and layers, and the worst step of the worst layer. Empty if the log has no
/// StepBalance.
std::string steps_over_training(const RoutingDigest& routing);
/// Returns a chart of the share of choices that exceeded the capacity of their expert; empty if capacity is not
/// limited.
std::string dropped_over_training(const RoutingDigest& routing);

}  // namespace lyceum
