#pragma once

#include <gtest/gtest.h>

#include <type_traits>

#include "core/stream.h"
#ifdef LYCEUM_TEST_DEVICE
#include "support/device_mirror.h"
#endif

namespace lyceum {

/// Runs a kernel on the device that this program tests, with operands in the host's memory: on the CPU with `threads`
/// threads; or, in a program of tests for GPUs, on copies of all operands in the device's memory, with what stands
/// between the rows of a matrix, which come back afterwards. Throws what the kernel throws.
template <class Description>
void launch_on(int threads, const Description& description) {
#ifdef LYCEUM_TEST_DEVICE
  static_cast<void>(threads);
  launch_mirrored(description);
#else
  launch(Stream(CpuStream(threads)), description);
#endif
}

}  // namespace lyceum
