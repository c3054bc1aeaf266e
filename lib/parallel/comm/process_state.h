#pragma once

#include <cstdint>

namespace lyceum {

/// Returns a number that identifies this process's PID namespace (0 if unknown). Processes with the same number see
/// each other under the same process ids.
std::uint64_t process_space();
/// Returns the state of a process of this PID namespace, as in /proc/PID/stat: 'T' stopped, 'Z' zombie, …; '0' if there
/// is no such process, '?' if the state cannot be read.
char process_state(int process);
/// True if a process in this state will never execute another instruction.
constexpr bool is_gone(char state) { return state == '0' || state == 'Z' || state == 'X'; }

}  // namespace lyceum
