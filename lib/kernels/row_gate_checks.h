#pragma once

#include "kernels/checks.h"
#include "kernels/row_gate.h"

namespace lyceum {

// Checks of operands, used by all devices: throw an Error unless their extents fit together.

template <class T>
void require_fitting(const RowGateForward<T>& gate) {
  require_length("RowGateForward", "logits", gate.logits, gate.x.rows);
  require_extents("RowGateForward", "y", gate.y, gate.x.rows, gate.x.cols);
}

template <class T>
void require_fitting(const RowGateBackward<T>& gate) {
  require_length("RowGateBackward", "logits", gate.logits, gate.x.rows);
  require_length("RowGateBackward", "d_logits", gate.d_logits, gate.x.rows);
  require_extents("RowGateBackward", "dy", gate.dy, gate.x.rows, gate.x.cols);
  require_extents("RowGateBackward", "dx", gate.dx, gate.x.rows, gate.x.cols);
}

}  // namespace lyceum
