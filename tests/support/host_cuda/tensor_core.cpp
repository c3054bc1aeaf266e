#include "kernels/cuda/attention_kernels.cuh"
#include "kernels/cuda/grouped_kernels.cuh"

// Replaces lib/kernels/cuda/*_tensor_core.*: this device has no tensor cores.

namespace lyceum {

bool cuda::run_on_tensor_cores(const CudaStream&, const ForwardTask<bfloat16>&) { return false; }
bool cuda::run_on_tensor_cores(const CudaStream&, const BackwardTask<bfloat16>&) { return false; }
bool cuda::run_on_tensor_cores(const CudaStream&, const StickForwardTask<bfloat16>&) { return false; }
bool cuda::run_on_tensor_cores(const CudaStream&, const StickBackwardTask<bfloat16>&) { return false; }
bool grouped::run_on_tensor_cores(const Launch&, const Rows<bfloat16>&, std::span<const Weight>, Kernel) {
  return false;
}
bool grouped::run_with_activation(const Launch&, Rows<bfloat16>, std::span<const Weight>, const PickedRows<bfloat16>&,
                                  const RowGates<float>&, Kernel) {
  return false;
}

}  // namespace lyceum
