#pragma once

#include <memory>
#include <typeindex>
#include <unordered_map>

namespace lyceum {

/// What kernels keep between calls, one thing of a type: the state of a stream has it.
using Kept = std::unordered_map<std::type_index, std::shared_ptr<void>>;

}  // namespace lyceum
