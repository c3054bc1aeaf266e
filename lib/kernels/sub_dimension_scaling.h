#pragma once

namespace lyceum {

/// The scale α of MoHD's output: sub-dimension i of a token's output is multiplied by the factor α · g_i [MoHD 4.2].
/// p is the softmax of all N logits of the token, g_i = p_i for active sub-dimensions, P the sum of p over these.
enum class SubDimensionScaling {
  restore,  // α = N / P: the factors of the active sub-dimensions add up to N, as the text of the paper says
  printed,  // α = N · P: the formula that the paper prints
  none,     // α = 1
  ones,     // α = 1 and g_i = 1 for active sub-dimensions
};

}  // namespace lyceum
