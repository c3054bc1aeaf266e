#pragma once

#include <cuda_runtime_api.h>

#include "core/error.h"

namespace lyceum {

/// Throws unless `code` is success: one line with the call, the GPU and what CUDA says, and the caller's place.
///   check(cudaMalloc(&block, bytes), "cudaMalloc");
inline void check(cudaError_t code, Message call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // an error that can be cleared shall not show at the next call again
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) device = -1;
  throw Error(ExitCode::failed,
              format_message("{} failed on GPU {}: {} ({})",
                             {message_argument(call.text), message_argument(device),
                              message_argument(cudaGetErrorString(code)), message_argument(cudaGetErrorName(code))}),
              call.where);
}

}  // namespace lyceum
