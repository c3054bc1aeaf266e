#pragma once

#include <string>
#include <system_error>

namespace lyceum {

/// Returns the system's text for an error number. A limit that a user can raise is named: "Too many open files (the
/// limit of a process: ulimit -n)". ELOOP and ENXIO are worded as open_regular() sets them.
std::string system_reason(int error);
std::string system_reason(const std::error_code& error);

}  // namespace lyceum
