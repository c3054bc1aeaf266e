#include "kernels/product_kernels.h"

#ifdef LYCEUM_CUDA
#include "kernels/cuda/grouped_kernels.cuh"
#endif

namespace lyceum {

std::map<std::string, std::int64_t> product_kernels([[maybe_unused]] const Stream& stream) {
#ifdef LYCEUM_CUDA
  if (const auto* gpu = std::get_if<CudaStream>(&stream)) return gpu->keep<grouped::KernelCounts>().products;
#endif
  return {};
}

}  // namespace lyceum
