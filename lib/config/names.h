#pragma once

#include <array>
#include <string>

#include "config/config.h"

namespace lyceum {

/// What the values of an enumeration are called in a configuration, in their order.
inline constexpr std::array recompute_names{"none", "selective", "full"};
inline constexpr std::array attention_weights_names{"softmax", "stick_breaking"};
inline constexpr std::array qk_norm_names{"none", "head", "all"};
inline constexpr std::array router_names{"softmax", "sigmoid", "sqrt_softplus", "mlp", "noisy", "random", "hash"};
inline constexpr std::array activation_names{"swiglu", "gelu"};
inline constexpr std::array gates_names{"raw", "renormalized", "detached", "ones"};
inline constexpr std::array scaling_names{"restore", "printed", "none"};
inline constexpr std::array piece_gates_names{"raw", "ones"};
inline constexpr std::array scope_names{"sequence", "batch"};
inline constexpr std::array placement_names{"contiguous", "pairs", "cost"};
inline constexpr std::array dispatch_names{"auto", "direct", "hierarchical"};
inline constexpr std::array overlap_names{"none", "shared", "batches"};
/// Of gates that nobody chose, before them.
inline constexpr const char* derived_name = "auto";

inline std::string name_of(Recompute recompute) { return recompute_names.at(static_cast<std::size_t>(recompute)); }
inline std::string name_of(AttentionWeights weights) {
  return attention_weights_names.at(static_cast<std::size_t>(weights));
}
inline std::string name_of(QkNormKind kind) { return qk_norm_names.at(static_cast<std::size_t>(kind)); }
inline std::string name_of(RouterKind kind) { return router_names.at(static_cast<std::size_t>(kind)); }
inline std::string name_of(Gates gates) { return gates_names.at(static_cast<std::size_t>(gates)); }
inline std::string name_of(PlacementKind kind) { return placement_names.at(static_cast<std::size_t>(kind)); }

}  // namespace lyceum
