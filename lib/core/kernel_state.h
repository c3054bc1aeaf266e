#pragma once

#include <memory>
#include <typeindex>
#include <unordered_map>

namespace lyceum {

/// State that kernels keep between calls, one object per type. Each stream has one such map.
using KernelState = std::unordered_map<std::type_index, std::shared_ptr<void>>;

}  // namespace lyceum
