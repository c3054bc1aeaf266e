#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace lyceum {

/// The kinds of schedules that make_schedule() can make.
enum class ScheduleKind { gpipe, one_forward_one_backward, interleaved, zero_bubble };

/// The names of the kinds in a configuration, in the order of the enumeration.
inline constexpr std::array schedule_names{"gpipe", "1f1b", "interleaved", "zb-h1"};

inline std::string name_of(ScheduleKind kind) { return schedule_names.at(static_cast<std::size_t>(kind)); }

}  // namespace lyceum
