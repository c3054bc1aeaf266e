#pragma once

#include <array>
#include <cstdint>

#include "config/feature.h"
#include "kernels/routing_policy.h"

namespace lyceum {

struct MoeConfig;

/// The kind of a router, see model/routing/router.h.
enum class RouterKind { softmax, sigmoid, sqrt_softplus, mlp, noisy, random, hash, uniform };
constexpr auto names_of(RouterKind) {
  return std::array{"softmax", "sigmoid", "sqrt_softplus", "mlp", "noisy", "random", "hash", "uniform"};
}

constexpr auto names_of(GroupScore) { return std::array{"top2", "maximum"}; }

constexpr auto names_of(Gates) { return std::array{"raw", "renormalized", "detached", "ones"}; }

/// False for the routers that choose experts without logits and scores.
constexpr bool has_scores(RouterKind router) { return router != RouterKind::hash && router != RouterKind::uniform; }

/// Returns the scores that a router computes from its logits; softmax without has_scores(). With sigmoid and
/// sqrt_softplus, experts are selected by score + bias (balance.bias_rate).
constexpr Scores scores_of(RouterKind router) {
  switch (router) {
    case RouterKind::sigmoid: return Scores::sigmoid;
    case RouterKind::sqrt_softplus: return Scores::sqrt_softplus;
    default: return Scores::softmax;
  }
}

/// Returns moe.gates. If unset: ones for a hash, renormalized for uniform choices, raw for the others.
Gates gates_of(const MoeConfig& moe);
/// Returns attention_experts.gates. If unset, the default for moe.router: ones for a hash, renormalized for uniform
/// choices, sigmoid and sqrt_softplus, detached for the others.
Gates attention_gates_of(const Config& config);

/// Returns the number of experts, of a router's `choices`, in the groups from which one token may choose
/// (moe.group_limit). Precondition: balance.device_groups > 0.
std::int64_t choices_of_allowed_groups(const Config& config, std::int64_t choices);

/// Adds the keys of [moe] that determine how tokens choose experts.
void declare_router_keys(ConfigKeys& keys, MoeConfig& moe);
void check_router(Findings& findings, const Config& config);
/// Sets moe.gates to gates_of() and, if attention has experts, attention_experts.gates to attention_gates_of().
void derive_gates(Config& config);

}  // namespace lyceum
