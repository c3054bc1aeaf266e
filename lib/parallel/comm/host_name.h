#pragma once

#include <string>

namespace lyceum {

/// Returns the host name of this machine; "unknown" if it cannot be determined.
std::string host_name();

}  // namespace lyceum
