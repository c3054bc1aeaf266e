#pragma once

#include "model/mixture.h"
#include "plan/place.h"

namespace lyceum {

/// Bytes that a part of the model takes for one micro-batch on a rank; routing is taken as balanced.
struct ActivationNeed {
  double forward = 0;           // the most that forward takes on top of what it keeps; of the head
  double kept = 0;              // from forward until backward
  double kept_for_weights = 0;  // what weight gradients that are put off need, with the gradients they multiply
  double backward = 0;          // the most that backward takes on top of what is kept
};
/// A block, with what model.recompute keeps and makes again.
ActivationNeed block_activations(const Config& config, const Place& place, std::int64_t layer);
/// Final norm, head and loss.
ActivationNeed head_activations(const Config& config, const Place& place);
/// What this rank's experts of a mixture compute for one micro-batch, in shares of what all its experts compute for one
/// sequence: experts differ in width, and may not divide among the ranks.
double routed_share(const Config& config, const Mixture& mixture, const Place& place);
/// Rows between two blocks.
double row_activations(const Config& config, const Place& place);
/// Bytes of a micro-batch's tokens and targets.
double token_bytes(const Config& config);

}  // namespace lyceum
