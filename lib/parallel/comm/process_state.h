#pragma once

#include <cstdint>

namespace lyceum {

/// Processes with the same number here see each other under the numbers that they have for themselves.
std::uint64_t process_space();
/// The state of a process of this process space as Linux reports it: T stopped, Z a zombie, …; '0' if there is no such
/// process, '?' if it cannot be read.
char process_state(int process);
/// True if a process in this state executes no more instructions, ever.
constexpr bool is_gone(char state) { return state == '0' || state == 'Z' || state == 'X'; }

}  // namespace lyceum
