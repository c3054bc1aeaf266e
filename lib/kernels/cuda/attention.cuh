#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/attention.h"

namespace lyceum::cuda {

/// Bytes of device memory that attention_backward() works in.
template <class T>
std::int64_t attention_workspace_bytes(const AttentionShape& shape) {
  return shape.sequences * shape.query_len * shape.heads * static_cast<std::int64_t>(sizeof(Accumulator<T>));
}

/// Enqueues AttentionForward, whose matrices lie in device memory; T is float, double or bfloat16. Throws if shapes do
/// not fit. Returns what the launch returned.
template <class T>
[[nodiscard]] cudaError_t attention_forward(cudaStream_t stream, const AttentionForward<T>& attention);

/// Likewise; `workspace` is attention_workspace_bytes() of device memory, in use until the launches have run.
template <class T>
[[nodiscard]] cudaError_t attention_backward(cudaStream_t stream, const AttentionBackward<T>& attention,
                                             void* workspace);

}  // namespace lyceum::cuda
