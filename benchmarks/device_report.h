#pragma once

#include <future>
#include <string>

#include "core/stream.h"

namespace lyceum {

/// Peak rates of a device. 0: unknown.
struct Peaks {
  double flops = 0;  // FLOP/s: dense bf16 products with f32 accumulation
  double bytes = 0;  // bytes/s: device memory
};

/// The device of a stream, for the record of a measurement.
struct DeviceReport {
  std::string name, driver;
  std::string selector;  // GPU id for nvidia-smi -i; empty on a CPU
  Peaks peaks;           // as the vendor states them, if the device's name is known
};
DeviceReport describe_device(const Stream& stream);

/// Queries clocks, power and temperature of the GPU from nvidia-smi, concurrently with the caller's work. Returns "" on
/// a CPU, and "nvidia-smi does not answer" if it fails.
std::future<std::string> sample_clocks(const DeviceReport& device);

/// Returns the bytes/s of a = b + s·c on the host with `threads` threads, for arrays larger than the caches.
double host_bandwidth(int threads);

/// Returns the first line that a shell command prints; "" if it fails or prints nothing.
std::string output_of(const std::string& command);

}  // namespace lyceum
