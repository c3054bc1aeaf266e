#include "kernels/cuda/activation_formulas.h"
#include "kernels/cuda/grouped_wgmma_launch.cuh"

namespace lyceum::grouped {

void run_wgmma_activation(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                          Kernel kernel) {
  switch (launch.activation->kind) {
    case Activation::swiglu: return run_rows<Product::forward, Swiglu>(launch, rows, weights, kernel);
    case Activation::gelu: return run_rows<Product::forward, Gelu>(launch, rows, weights, kernel);
    case Activation::clamped_swiglu: return run_rows<Product::forward, ClampedSwiglu>(launch, rows, weights, kernel);
  }
}

}  // namespace lyceum::grouped
