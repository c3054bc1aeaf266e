#include "kernels/cuda/activation_formulas.h"
#include "kernels/cuda/grouped_wgmma_launch.cuh"

namespace lyceum::grouped {

namespace {

template <class Act>
void run_product(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights, Kernel kernel) {
  rows.picked ? run_cheaper_tiles<Product::forward, true, Act>(launch, rows, weights, kernel)
              : run_cheaper_tiles<Product::forward, false, Act>(launch, rows, weights, kernel);
}

}  // namespace

void run_wgmma_activation(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                          Kernel kernel) {
  *launch.activation == Activation::swiglu ? run_product<Swiglu>(launch, rows, weights, kernel)
                                           : run_product<Gelu>(launch, rows, weights, kernel);
}

}  // namespace lyceum::grouped
