#pragma once

#include <cstddef>

namespace host_cuda {

/// Makes device memory accessible to this thread while an object of this class exists, that is while a kernel, a copy
/// or a library of the device works. Objects may be nested. At other times device memory is protected, so host code
/// that touches it crashes, as it would with a GPU.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

/// Returns a block of device memory filled with 0xff bytes, to be returned by give_back_device_memory(); null if there
/// is none left.
void* take_device_memory(std::size_t bytes);
void give_back_device_memory(void* block);

}  // namespace host_cuda
