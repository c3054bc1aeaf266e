#pragma once

#include <cstddef>

namespace host_cuda {

/// The device's memory can be read and written as long as one of these is there: while a kernel, a copy or a library of
/// the device works. At other times it is protected, so that code of the host that touches it crashes, as it would with
/// a GPU.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

/// Poisoned with 0xff bytes; null when there is none.
void* take_device_memory(std::size_t bytes);
void give_back_device_memory(void* block);

}  // namespace host_cuda
