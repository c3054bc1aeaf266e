#pragma once

#include <array>
#include <string>

#include "io/config/config.h"

namespace lyceum {

/// What the values of an enumeration are called in a configuration, in their order.
inline constexpr std::array attention_weights_names{"softmax", "stick_breaking"};
inline constexpr std::array router_names{"softmax", "sigmoid", "mlp", "noisy", "random", "hash"};
inline constexpr std::array gates_names{"raw", "renormalized", "detached", "ones"};
/// Of gates that nobody chose, before them.
inline constexpr const char* derived_name = "auto";

inline std::string name_of(AttentionWeights weights) {
  return attention_weights_names.at(static_cast<std::size_t>(weights));
}
inline std::string name_of(RouterKind kind) { return router_names.at(static_cast<std::size_t>(kind)); }
inline std::string name_of(Gates gates) { return gates_names.at(static_cast<std::size_t>(gates)); }

}  // namespace lyceum
