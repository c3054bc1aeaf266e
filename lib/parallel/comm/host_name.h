#pragma once

#include <string>

namespace lyceum {

/// Of this machine; "unknown" where it has none.
std::string host_name();

}  // namespace lyceum
