#pragma once

#include <string>

namespace lyceum {

/// Returns the text of configs/clusters/h100-8x.ini as it was when the program was built.
std::string default_cluster_text();

}  // namespace lyceum
