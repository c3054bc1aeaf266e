#pragma once

#include <cuda_runtime_api.h>

#include "core/error.h"

namespace lyceum {

/// One line with the call, the GPU and what CUDA says, and the caller's place.
[[noreturn]] void fail_on_gpu(cudaError_t code, const Message& call);

/// Throws unless `code` is success: see fail_on_gpu().
///   check(cudaMalloc(&block, bytes), "cudaMalloc");
inline void check(cudaError_t code, const Message& call) {
  if (code != cudaSuccess) fail_on_gpu(code, call);
}

}  // namespace lyceum
