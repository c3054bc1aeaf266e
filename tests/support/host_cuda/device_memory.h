#pragma once

#include <cstddef>

namespace host_cuda {

/// Makes device memory accessible while an object of this class exists: while a kernel, a copy or a library of the
/// device works. At other times it is protected, so host code that touches it crashes, as it would with a GPU.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

/// Returns device memory filled with 0xff bytes; null if there is none left.
void* take_device_memory(std::size_t bytes);
void give_back_device_memory(void* block);

}  // namespace host_cuda
