#include "kernels/adamw.h"

#include "kernels/cpu/weight_update.h"

namespace lyceum {

template void run(const CpuStream&, const UpdateWeights<float, AdamW>&);
template void run(const CpuStream&, const UpdateWeights<bfloat16, AdamW>&);
template void run(const CpuStream&, const UpdateWeights<double, AdamW>&);

}  // namespace lyceum
