#pragma once

#include <string>

#include "io/routing/activation_flow.h"

namespace lyceum {

/// Returns a self-contained HTML page with charts of
/// - the share of the magnitude that the largest dimensions have, by their number and by layer;
/// - mean and median magnitudes by layer;
/// - the number of dimensions that stay high for several consecutive tokens. [MoHD Fig. 3 and 5]
std::string flow_page(const ActivationFlow& flow);

}  // namespace lyceum
