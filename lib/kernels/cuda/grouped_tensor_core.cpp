#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/grouped_kernels.cuh"
#include "kernels/cuda/grouped_wgmma_layout.h"

namespace lyceum::grouped {

namespace {

/// True if all rows that the activation reads or writes begin at multiples of 16 bytes.
bool rows_are_aligned(const Launch& launch, const Rows<bfloat16>& rows, const Weight& weight) {
  const auto aligned = [](const bfloat16* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
  const ActivatedRows<bfloat16>& activated = rows.activated;
  return activated_width(launch.product, weight, activated.inputs) % 8 == 0 && aligned(rows.y) &&
         aligned(activated.values) && aligned(activated.hidden);
}

}  // namespace

bool run_with_activation(const Launch& launch, Rows<bfloat16> rows, std::span<const Weight> weights,
                         const PickedRows<bfloat16>& picked, const RowGates<float>& gates, Kernel kernel) {
  if (kernel == Kernel::plain || kernel == Kernel::mma_sync || kernel == Kernel::cooperative) return false;
  if (!can_run_hopper_kernels(launch.stream)) return false;
  std::vector<Weight> filled(weights.size());  // empty where a weight has no columns
  std::int32_t widest = 0;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    const std::int32_t width = activated_width(launch.product, weights[e], rows.activated.inputs);
    if (width == 0) continue;
    if (!wgmma_supports(launch.product, rows, weights[e]) || !rows_are_aligned(launch, rows, weights[e])) return false;
    filled[e] = weights[e];
    widest = std::max(widest, width);
  }
  if (widest == 0) return false;
  PickedIndices indices;
  if (picked) {
    indices = pick(launch.stream, launch.name, picked.source, picked.divisor, picked.x.rows);
    rows.picked_x.row = indices.row;
  }
  GatesOfRows of_rows;
  if (gates) {
    constexpr int columns = PingPongTiling::n;  // of a tile, also in clusters
    of_rows = gates_of_rows(launch.stream, launch.name, gates, (widest + columns - 1) / columns);
    rows.activated.gate = of_rows.gate;
    rows.activated.d_gate = of_rows.d_gate;
    rows.activated.across = of_rows.across;
  }
  launch.product == Product::forward ? run_wgmma_activation(launch, rows, filled, kernel)
                                     : run_wgmma_activation_backward(launch, rows, filled, kernel);
  if (gates) add_gate_gradients(launch.stream, launch.name, of_rows, gates);
  return true;
}

/// Experts that wgmma supports are launched there, the rest with mma.sync. In each launch the weights of the other
/// group are empty.
bool run_on_tensor_cores(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                         Kernel kernel) {
  std::vector<Weight> fast(weights.size()), others(weights.begin(), weights.end());
  bool any_fast = false, any_other = false;
  const bool wgmma = kernel != Kernel::mma_sync && can_run_hopper_kernels(launch.stream);
  for (std::size_t e = 0; e < weights.size(); ++e) {
    const bool takes = wgmma && wgmma_supports(launch.product, rows, weights[e]);
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
