#pragma once

#include <gtest/gtest.h>

#include "core/gpu.h"
#include "core/stream.h"
#include "support/device_mirror.h"

namespace lyceum {

/// Runs a kernel on the device that this program tests, with operands in the host's memory: on the CPU with `threads`
/// threads; or, in a program of tests for GPUs, on copies of all operands in the device's memory, with what stands
/// between the rows of a matrix, which come back afterwards. Throws what the kernel throws.
template <class Description>
void launch_on(int threads, const Description& description) {
  if constexpr (built_with_cuda) {
    if (tests_run_on_gpu()) return launch_mirrored(description);
  }
  launch(Stream(CpuStream(threads)), description);
}

}  // namespace lyceum
