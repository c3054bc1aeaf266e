#pragma once

#include <string>

namespace lyceum {

/// Returns the text of configs/clusters/h100-8x.ini as of the build.
std::string default_cluster_text();

}  // namespace lyceum
