#pragma once

#include <span>

namespace lyceum {

/// A command of the program: the arguments after its name; the exit code.
int routing_command(std::span<char* const> arguments);

}  // namespace lyceum
