#pragma once

#include <span>

namespace lyceum {

/// The commands of the program. `arguments` are those behind the command's name; the result is the exit code.
/// Anything that goes wrong is thrown as an Error.
int tokenize_command(std::span<char* const> arguments);

}  // namespace lyceum
