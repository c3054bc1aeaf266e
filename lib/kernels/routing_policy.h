#pragma once

namespace lyceum {

/// The function that turns the router logits of a token into scores; RouteTokens has the formulas.
enum class Scores { softmax, sigmoid, sqrt_softplus };

/// The gates, by which the outputs of a token's chosen experts are multiplied. v: the scores of the k chosen experts.
enum class Gates {
  raw,           // v
  renormalized,  // v / Σ v [GShard, for the two chosen experts]
  detached,      // v / Σ v, where Σ v is taken as a constant in backward [ModuleFormer]
  ones,          // 1
};

}  // namespace lyceum
