#pragma once

#include <string>
#include <system_error>

namespace lyceum {

/// Returns the system's message for an error number. If the error is a limit that the user can raise, names it: "Too
/// many open files (the limit of a process: ulimit -n)". The texts for ELOOP and ENXIO describe the cases in which
/// open_regular() sets them.
std::string system_reason(int error);
/// Returns the same text for a system error, and the message of any other error.
std::string system_reason(const std::error_code& error);

}  // namespace lyceum
