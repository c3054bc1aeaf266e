#pragma once

// Functions with these macros compile for host and device under nvcc, and for the host only with other compilers. So
// index maps, schedules and the steps of a tile can be tested on machines without a GPU.
#ifdef __CUDACC__
#define LYCEUM_HOST_DEVICE __host__ __device__ __forceinline__
#define LYCEUM_DEVICE __device__ __forceinline__
#else
#define LYCEUM_HOST_DEVICE inline
#define LYCEUM_DEVICE inline
#endif

#ifdef __CUDA_ARCH__
#define LYCEUM_UNROLL _Pragma("unroll")
#define LYCEUM_NO_UNROLL _Pragma("unroll 1")
#else
#define LYCEUM_UNROLL
#define LYCEUM_NO_UNROLL
#endif
