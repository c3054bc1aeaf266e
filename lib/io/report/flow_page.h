#pragma once

#include <string>

#include "io/routing/activation_flow.h"

namespace lyceum {

/// One page that needs nothing else: how much of the magnitude the largest dimensions have, by layer and by how many
/// they are; magnitudes by layer; how many dimensions stay high for how many tokens. [MoHD Fig. 3 and 5]
std::string flow_page(const ActivationFlow& flow);

}  // namespace lyceum
