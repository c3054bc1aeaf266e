#pragma once

#include <cstddef>

#include "core/stream.h"

namespace lyceum {

/// True if oneDNN's bf16 primitives are faster on this CPU than float products of converted operands: with AMX, or with
/// AVX-512 BF16 on AMD (Zen 4 and later), where they were measured to be twice as fast. On other CPUs, including Intel
/// CPUs with AVX-512 BF16 but without AMX, they are slower. The answer is not measured at run time, because the choice
/// affects rounding.
bool has_native_bf16();

/// True if oneDNN supports bf16 primitives on this CPU at all, which requires AVX-512.
bool can_use_native_bf16();

/// Makes the stream's bfloat16 products use oneDNN's bf16 primitives, or not, regardless of has_native_bf16(). For
/// tests. Throws an Error if `native` and the CPU does not support them.
void force_native_bf16(const CpuStream& stream, bool native);
/// True if the stream's bfloat16 products use oneDNN's bf16 primitives; has_native_bf16() by default.
bool uses_native_bf16(const CpuStream& stream);

/// The number of compiled bf16 products that a stream keeps, see MatmulCache. Each takes 100 to 300 kB.
inline constexpr std::size_t most_compiled_products = 512;

}  // namespace lyceum
