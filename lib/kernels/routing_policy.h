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

/// The score of a group of experts, by which a token chooses groups (RouteTokens::group_limit).
enum class GroupScore {
  top2,     // the sum of the scores of its two best experts [DeepSeek-V3]
  maximum,  // the score of its best expert [DeepSeek-V2]
};

}  // namespace lyceum
