#pragma once

#include <span>

namespace lyceum {

/// `lyceum checkpoint …`: `arguments` are those after the command's name; the exit code.
int checkpoint_command(std::span<char* const> arguments);

}  // namespace lyceum
