#pragma once

#include <map>
#include <span>
#include <vector>

namespace lyceum {

/// A use of one layer in a forward or backward pass. `layer`: index as in the constructor of ParameterUnit, which is 0
/// for the embedding and 1 + b for block b.
struct LayerUse {
  int layer;
  bool backward;
};

/// Memory and gathers of sharded parameters in one step on one rank, found by a simulation of Zero.
struct ZeroStates {
  std::map<int, double> gathers;  // layer → number of times that its values are gathered
  double values = 0;              // maximum bytes of gathered values at a time
  double gradients = 0;           // maximum bytes of unsharded gradients at a time
  /// Maxima of `values` and `gradients` while backward is in the rank's last two layers, when the most activations are
  /// kept.
  double early_values = 0;
  double early_gradients = 0;
};
/// Bytes of a layer's values and gradients before they are sharded.
struct LayerBytes {
  double values, gradients;
};
/// Simulates one step that uses layers in the order of `uses`. `layers`: the bytes of the rank's layers, by index.
/// `held`: a layer whose gradients stay unsharded from its first use in backward to its last, such as a table that is
/// both embedding and head; −1: none.
ZeroStates simulate_zero(const std::map<int, LayerBytes>& layers, std::span<const LayerUse> uses, int held = -1);

}  // namespace lyceum
