#include <utility>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/grouped_kernels.cuh"

namespace lyceum::grouped {

/// The experts that wgmma can compute go there and the rest to mma.sync; each launch sees the others' weights as empty.
bool run_on_tensor_cores(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                         Kernel kernel) {
  std::vector<Weight> fast(weights.size()), others(weights.begin(), weights.end());
  bool any_fast = false, any_other = false;
  const bool wgmma = kernel != Kernel::mma_sync && hopper_is_here(launch.stream);
  for (std::size_t e = 0; e < weights.size(); ++e) {
    const bool takes = wgmma && wgmma_takes(launch.product, rows, weights[e]);
    require(takes || kernel == Kernel::automatic || kernel == Kernel::mma_sync,
            "expert {} cannot be computed by wgmma: its rows are not aligned, or the device is not sm_90", e);
    if (takes) std::swap(fast[e], others[e]);
    (takes ? any_fast : any_other) = true;
  }
  if (any_fast) run_wgmma(launch, rows, fast, kernel);
  if (any_other) {
    count_product(launch, Kernel::mma_sync);
    run_mma(launch, rows, others);
  }
  return true;
}

}  // namespace lyceum::grouped
