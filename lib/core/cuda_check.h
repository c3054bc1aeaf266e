#pragma once

#include <cuda_runtime_api.h>

#include "core/error.h"

namespace lyceum {

/// Throws an Error (ExitCode::failed) with one line: the call, the current GPU and CUDA's message. Its source location
/// is the caller's.
[[noreturn]] void fail_on_gpu(cudaError_t code, const Message& call);

/// Throws as fail_on_gpu() unless `code` is success:
///   check(cudaMalloc(&block, bytes), "cudaMalloc");
inline void check(cudaError_t code, const Message& call) {
  if (code != cudaSuccess) fail_on_gpu(code, call);
}

}  // namespace lyceum
