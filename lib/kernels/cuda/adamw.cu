#include "kernels/adamw.h"
#include "kernels/cuda/weight_update.cuh"

namespace lyceum {

LYCEUM_UPDATE_RULE_KERNELS(LYCEUM_CUDA_INSTANCE, AdamW)

}  // namespace lyceum
