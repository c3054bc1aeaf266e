#pragma once

#include "kernels/checks.h"
#include "kernels/qk_clip.h"

namespace lyceum {

/// Throws an Error if the operands do not fit together.
template <class A>
void require_fitting(const RaiseToColumns<A>& raise) {
  require_length("RaiseToColumns", "y", raise.y, raise.x.cols);
}
inline void require_fitting(const QkClipFactors& clip) {
  require(clip.group > 0 && clip.threshold > 0, "QkClipFactors: {} query heads per key head and a threshold of {}",
          clip.group, clip.threshold);
  require_length("QkClipFactors", "factors", clip.factors, 2 * (std::ssize(clip.largest) / clip.group));
}

}  // namespace lyceum
