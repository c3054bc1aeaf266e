#pragma once

#include "io/config.h"

namespace lyceum {

/// Bytes of one rank, by what they are held for. Of doubles, so that no size a user writes overflows them.
struct MemoryNeed {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0;
  double total() const { return weights + gradients + optimizer + activations; }
};

/// What a rank with its full share of the experts needs at the very least, from a resolved configuration and the number
/// of ranks alone. Exact but for padding: weights, and when `train` gradients, master weights and moments, each by
/// parallel.zero (without the layers that stages 2 and 3 hold whole while they are in use). A floor, when `train`: the
/// logits of a micro-batch and the input of every block; how much more is kept depends on model.recompute.
MemoryNeed least_memory(const Config& config, int world, bool train);

/// Throws a usage Error that tells the need by kind and ways out, unless it fits a rank's `available` bytes: those of
/// this machine divided by its `ranks`.
void require_fits(const MemoryNeed& need, const Config& config, double available, int ranks);

}  // namespace lyceum
