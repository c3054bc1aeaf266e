#pragma once

// Words for code that is compiled twice: by nvcc for the GPU, and by the host's compiler for tests that run the same
// code on an emulated block of threads.
#ifdef __CUDACC__
#define LYCEUM_HOST_DEVICE __host__ __device__ __forceinline__
#define LYCEUM_DEVICE __device__ __forceinline__
#define LYCEUM_UNROLL _Pragma("unroll")
#define LYCEUM_NO_UNROLL _Pragma("unroll 1")
#else
#define LYCEUM_HOST_DEVICE inline
#define LYCEUM_DEVICE inline
#define LYCEUM_UNROLL
#define LYCEUM_NO_UNROLL
#endif
