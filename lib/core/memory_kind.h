#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lyceum {

/// The use of a block of memory. Allocators count bytes and peaks per kind.
enum class MemoryKind : std::uint8_t { weights, gradients, optimizer, activations, buffers };
constexpr std::size_t memory_kinds = 5;
std::string_view name_of(MemoryKind kind);

}  // namespace lyceum
