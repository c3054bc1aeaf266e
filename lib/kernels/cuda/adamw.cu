#include "kernels/adamw.h"
#include "kernels/cuda/weight_update.cuh"

namespace lyceum {

template void run(const CudaStream&, const UpdateWeights<float, AdamW>&);
template void run(const CudaStream&, const UpdateWeights<bfloat16, AdamW>&);
template void run(const CudaStream&, const UpdateWeights<double, AdamW>&);

}  // namespace lyceum
