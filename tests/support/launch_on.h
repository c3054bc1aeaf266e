#pragma once

#include <gtest/gtest.h>

#include "core/gpu.h"
#include "core/stream.h"
#include "support/device_mirror.h"

namespace lyceum {

/// Runs a kernel on the device that this program tests; operands are in host memory. On the CPU it uses `threads`
/// threads. In a program of GPU tests it runs on copies of all operands in device memory, including gaps between rows
/// of matrices, and copies them back. Throws what the kernel throws.
template <class Description>
void launch_on(int threads, const Description& description) {
  if constexpr (built_with_cuda) {
    if (tests_run_on_gpu()) return launch_mirrored(description);
  }
  launch(Stream(CpuStream(threads)), description);
}

}  // namespace lyceum
