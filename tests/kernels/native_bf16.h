#pragma once

#include "kernels/cpu/tile_gemm.h"
#include "support/errors.h"

namespace lyceum::test {

/// Makes the stream use oneDNN's bf16 primitives. False where the CPU has none and this is refused, as it must be: then
/// there is nothing more to test.
inline bool force_native_bf16(const CpuStream& stream) {
  if (can_use_native_bf16()) return lyceum::force_native_bf16(stream, true), true;
  expect_failure([&] { lyceum::force_native_bf16(stream, true); }, "no AVX-512");
  return false;
}

}  // namespace lyceum::test
