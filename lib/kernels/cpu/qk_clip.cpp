#include "kernels/qk_clip.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/qk_clip_checks.h"

namespace lyceum {

template <class A>
void run(const CpuStream&, const RaiseToColumns<A>& raise) {
  require_fitting(raise);
  double* const y = raise.y.data();
  for (std::int64_t r = 0; r < raise.x.rows; ++r) {
    const A* const x = raise.x.row(r);
#pragma omp simd
    for (std::int64_t c = 0; c < raise.x.cols; ++c) {
      const auto value = static_cast<double>(x[c]);
      y[c] = value > y[c] ? value : y[c];
    }
  }
}

void run(const CpuStream&, const QkClipFactors& clip) {
  require_fitting(clip);
  const std::size_t heads = clip.factors.size() / 2, group = static_cast<std::size_t>(clip.group);
  for (std::size_t g = 0; g < heads; ++g) {
    double factor = 1;
    for (const double logit : clip.largest.subspan(g * group, group)) {
      if (logit > clip.threshold && std::isfinite(logit)) factor = std::min(factor, clip.threshold / logit);
    }
    clip.factors[g] = std::sqrt(factor);
    clip.factors[heads + g] = factor;
  }
}

LYCEUM_QK_CLIP_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
