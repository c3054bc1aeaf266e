#pragma once

// What is marked so compiles for the host and the device under nvcc, and for the host alone under every other compiler:
// index maps, schedules and the steps of a tile are tested on machines without a GPU.
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
