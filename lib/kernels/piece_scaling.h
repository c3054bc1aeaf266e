#pragma once

namespace lyceum {

/// α of a token's answer, piece i of which is multiplied by α · g_i, where p is the softmax of all N logits, g_i = p_i
/// for pieces that are on and P = Σ_on p [MoHD 4.2].
enum class PieceScaling {
  restore,  // N / P: the factors of the pieces that are on add up to N
  printed,  // N · P, as the formula of the paper has it
  none,     // 1
  ones,     // g_i = 1 for those that are on, and α = 1
};

}  // namespace lyceum
