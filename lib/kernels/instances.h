#pragma once

#include "core/stream.h"

// The sources of a device hold the instances of its kernel templates. The header of a family lists them once for all
// devices, next to the declarations: LYCEUM_BIAS_KERNELS(INSTANCE) expands to INSTANCE(Description<type>) for each. A
// source ends with the list of its family, for example LYCEUM_BIAS_KERNELS(LYCEUM_CPU_INSTANCE).

#define LYCEUM_CPU_INSTANCE(...) template void run(const CpuStream&, const __VA_ARGS__&);
#define LYCEUM_CUDA_INSTANCE(...) template void run(const CudaStream&, const __VA_ARGS__&);

/// Instances for the number types of weights and activations.
#define LYCEUM_FLOATS(INSTANCE, Description) \
  INSTANCE(Description<float>) INSTANCE(Description<bfloat16>) INSTANCE(Description<double>)
/// Instances for the number types of sums.
#define LYCEUM_ACCUMULATORS(INSTANCE, Description) INSTANCE(Description<float>) INSTANCE(Description<double>)
