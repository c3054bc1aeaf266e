#pragma once

namespace lyceum {

/// What the logits of a token become, see RouteTokens.
enum class Scores { softmax, sigmoid, sqrt_softplus };

/// What the answers of a token's chosen experts are multiplied by; v: the scores of the chosen.
enum class Gates {
  raw,           // v
  renormalized,  // v / Σ v [GShard: over the chosen two]
  detached,      // v / Σ v, where the sum has no gradient [ModuleFormer]
  ones,          // 1
};

}  // namespace lyceum
