#pragma once

#include <string>

namespace lyceum {

/// configs/clusters/h100-8x.ini, as it was when this was built.
std::string default_cluster_text();

}  // namespace lyceum
