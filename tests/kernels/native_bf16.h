#pragma once

#include "kernels/cpu/tile_gemm.h"
#include "support/errors.h"

namespace lyceum::test {

/// Makes the stream use oneDNN's bf16 primitives. If the CPU does not support them, expects that this fails and returns
/// false; the test then has nothing more to do.
inline bool force_native_bf16(const CpuStream& stream) {
  if (can_use_native_bf16()) return lyceum::force_native_bf16(stream, true), true;
  expect_failure([&] { lyceum::force_native_bf16(stream, true); }, "no AVX-512");
  return false;
}

}  // namespace lyceum::test
