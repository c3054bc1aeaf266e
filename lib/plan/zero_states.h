#pragma once

#include <map>
#include <span>
#include <vector>

namespace lyceum {

/// A layer that a rank uses, by ParameterUnit::layer(), and in which direction.
struct LayerUse {
  int layer;
  bool backward;
};

/// What becomes of parameters that are shared out, in one step: the rules of Zero, played through.
struct ZeroStates {
  std::map<int, double> gathers;  // times that a layer's values are brought here
  double values = 0;              // the most bytes of values that are whole at a time
  double gradients = 0;           // the same of gradients
  double early_values = 0;  // both while backward is in the rank's last two layers, when most activations are kept
  double early_gradients = 0;
};
/// `layers`: bytes of a rank's layers when they are whole, values and gradients. `uses`: of a step, in order.
struct LayerBytes {
  double values, gradients;
};
/// `held`: a layer whose gradients stay whole from its first use in backward to its last, such as a table that is both
/// embedding and head; −1: none.
ZeroStates play_zero(const std::map<int, LayerBytes>& layers, std::span<const LayerUse> uses, int held = -1);

}  // namespace lyceum
