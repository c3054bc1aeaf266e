#pragma once

#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "core/copy.h"
#include "parallel/comm/process_group.h"
#include "support/tested_stream.h"

// Tensors for tests of process groups. They are in host memory or, in a program of GPU tests, on a GPU; then
// LYCEUM_TEST_TRANSPORT ("staged" or "nccl") selects how they are sent.
namespace lyceum {

inline Transport tested_transport() {
  if (!tests_run_on_gpu()) return Transport::mpi;
  const char* name = std::getenv("LYCEUM_TEST_TRANSPORT");
  return name && std::string_view(name) == "nccl" ? Transport::nccl : Transport::staged;
}

/// Returns the settings of NCCL: LYCEUM_TEST_NCCL_ORDER may be "serial".
inline NcclOptions tested_nccl() {
  const char* order = std::getenv("LYCEUM_TEST_NCCL_ORDER");
  return {.order = order && std::string_view(order) == "serial" ? NcclOrder::serial : NcclOrder::concurrent};
}

/// Returns the group with tensors on tested_stream() and the tested transport.
inline ProcessGroup tested(const ProcessGroup& group) {
  return group.on(tested_stream(), tested_transport(), tested_nccl());
}

/// True if the tested transport adds in the order of ranks, so that sums are bit-identical to serial ones.
inline bool sums_in_rank_order() { return tested_transport() != Transport::nccl; }
/// True if the tested transport detects that ranks pass different sizes to an operation.
inline bool detects_size_mismatch() { return tested_transport() != Transport::nccl; }
/// Returns a timeout in seconds for a rank that never arrives: long enough for the other ranks to begin the call.
inline double short_time() { return 1.5; }

template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.size()));
  if (tensor.size()) copy_to_host(tested_stream(), values.data(), tensor.raw(), tensor.bytes());
  return values;
}

template <class T>
Tensor tensor_of(const std::vector<T>& values) {
  const Tensor tensor = Tensor::empty(tested_stream(), dtype_of<T>, {std::ssize(values)});
  if (tensor.size()) copy_to_device(tested_stream(), tensor.raw(), values.data(), tensor.bytes());
  return tensor;
}

inline std::vector<std::byte> bytes_of(const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  if (!bytes.empty()) copy_to_host(tested_stream(), bytes.data(), tensor.raw(), bytes.size());
  return bytes;
}

inline void set_bytes(const Tensor& tensor, const void* bytes) {
  if (tensor.bytes()) copy_to_device(tested_stream(), tensor.raw(), bytes, tensor.bytes());
}

}  // namespace lyceum
