#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lyceum {

/// What memory is held for; peaks are distinguished by it.
enum class MemoryKind : std::uint8_t { weights, gradients, optimizer, activations, buffers };
constexpr std::size_t memory_kinds = 5;
std::string_view name_of(MemoryKind kind);

}  // namespace lyceum
