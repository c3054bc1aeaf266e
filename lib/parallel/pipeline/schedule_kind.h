#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace lyceum {

/// The schedules that make_schedule() makes.
enum class ScheduleKind { gpipe, one_forward_one_backward, interleaved, zero_bubble };

/// What they are called in a configuration, in their order.
inline constexpr std::array schedule_names{"gpipe", "1f1b", "interleaved", "zb-h1"};

inline std::string name_of(ScheduleKind kind) { return schedule_names.at(static_cast<std::size_t>(kind)); }

}  // namespace lyceum
