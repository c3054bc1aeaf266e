#pragma once

#include "cuda_runtime.h"

struct __nv_bfloat16 {
  unsigned short bits;
};

/// Rounds to nearest even; any NaN becomes the NaN that a GPU returns.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  const unsigned word = __float_as_uint(value);
  if ((word & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<unsigned short>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16)};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
