#pragma once

#include <future>
#include <string>

#include "core/stream.h"

namespace lyceum {

/// What a device can do at most. 0: not known.
struct Peaks {
  double flops = 0;  // a second: dense bf16 products, f32 accumulation
  double bytes = 0;  // a second: device memory
};

/// The device that a stream works on, for the record of a measurement.
struct DeviceReport {
  std::string name, driver;
  std::string selector;  // of the GPU, as nvidia-smi -i takes it; empty on a CPU
  Peaks peaks;           // as the maker states them, where the name is known
};
DeviceReport describe_device(const Stream& stream);

/// Clocks, power and temperature of the GPU at present, from nvidia-smi, in parallel to the caller's work; "" on a CPU,
/// "nvidia-smi gives no answer" where that is so.
std::future<std::string> sample_clocks(const DeviceReport& device);

/// Bytes a second of a = b + s·c on the host, every core of `threads` busy.
double host_bandwidth(int threads);

/// First line that a shell command prints; "" when it fails.
std::string output_of(const std::string& command);

}  // namespace lyceum
