#pragma once

#include <cstdint>

// wgmma adds to registers, each of which its PTX text and the asm statement must name. LYCEUM_REGISTERS_n is the text
// of the first n, and LYCEUM_SUMS_n lists d[0] to d[n - 1], which they are.
#define LYCEUM_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define LYCEUM_REGISTERS_32 \
  LYCEUM_REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LYCEUM_REGISTERS_48 \
  LYCEUM_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define LYCEUM_REGISTERS_64 \
  LYCEUM_REGISTERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LYCEUM_REGISTERS_80 \
  LYCEUM_REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define LYCEUM_REGISTERS_96 \
  LYCEUM_REGISTERS_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define LYCEUM_REGISTERS_112 \
  LYCEUM_REGISTERS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define LYCEUM_REGISTERS_128 \
  LYCEUM_REGISTERS_112       \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define LYCEUM_SUMS_4_FROM(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LYCEUM_SUMS_16_FROM(i) \
  LYCEUM_SUMS_4_FROM(i), LYCEUM_SUMS_4_FROM(i + 4), LYCEUM_SUMS_4_FROM(i + 8), LYCEUM_SUMS_4_FROM(i + 12)
#define LYCEUM_SUMS_32 LYCEUM_SUMS_16_FROM(0), LYCEUM_SUMS_16_FROM(16)
#define LYCEUM_SUMS_48 LYCEUM_SUMS_32, LYCEUM_SUMS_16_FROM(32)
#define LYCEUM_SUMS_64 LYCEUM_SUMS_48, LYCEUM_SUMS_16_FROM(48)
#define LYCEUM_SUMS_96 LYCEUM_SUMS_64, LYCEUM_SUMS_16_FROM(64), LYCEUM_SUMS_16_FROM(80)
#define LYCEUM_SUMS_128 LYCEUM_SUMS_96, LYCEUM_SUMS_16_FROM(96), LYCEUM_SUMS_16_FROM(112)

// The instruction for `n` columns, n / 2 = `sums` registers, and the operands that follow them.
#define LYCEUM_WGMMA_TEXT(n, sums, operands) \
  "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" LYCEUM_REGISTERS_##sums "}, " operands ";\n"

// wgmma() for one width. The other arguments are the registers after the `sums` ones.
#define LYCEUM_WGMMA(n, sums, descriptor_a, descriptor_b, add, transposed_a, transposed_b)                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\n" LYCEUM_WGMMA_TEXT(                             \
                   n, sums, descriptor_a ", " descriptor_b ", p, 1, 1, " transposed_a ", " transposed_b) "}\n" \
               : LYCEUM_SUMS_##sums                                                                            \
               : "l"(a), "l"(b), "r"(accumulate), "n"(int(TransposeA)), "n"(int(TransposeB)))
// wgmma_words() for one width.
#define LYCEUM_WGMMA_WORDS(n, sums, words, descriptor_b)                       \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" LYCEUM_WGMMA_TEXT(   \
                   n, sums, "{" words "}, " descriptor_b ", p, 1, 1, 1") "}\n" \
               : LYCEUM_SUMS_##sums                                            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

namespace lyceum::hopper {

/// Begins d += a · b, or d = a · b if `accumulate` is 0, on the tensor cores of a warpgroup: a [64, 16] and b [16, N]
/// in bf16, d [64, N] in f32. `a` and `b` are shared-memory descriptors. By default the lines of both operands run
/// along the 16 indices that are summed over; an operand is transposed if its lines run along the 64 rows of a, or
/// along the N columns of b. Asynchronous: d must not be accessed before wgmma_wait(). Uses the first N / 2 registers
/// of d.
template <int N, bool TransposeA, bool TransposeB, int Count>
__device__ __forceinline__ void wgmma(float (&d)[Count], std::uint64_t a, std::uint64_t b, int accumulate) {
  static_assert(N / 2 <= Count);
  static_assert(N == 64 || N == 96 || N == 128 || N == 192 || N == 256, "no wgmma of this width is written out here");
  if constexpr (N == 64) LYCEUM_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36");
  if constexpr (N == 96) LYCEUM_WGMMA(96, 48, "%48", "%49", "%50", "%51", "%52");
  if constexpr (N == 128) LYCEUM_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68");
  if constexpr (N == 192) LYCEUM_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100");
  if constexpr (N == 256) LYCEUM_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132");
}

/// wgmma() for a [64, 16] in registers, and b with lines along its columns. Always adds to d. `a` must not change
/// before wgmma_wait().
template <int N, int Count>
__device__ __forceinline__ void wgmma_words(float (&d)[Count], const std::uint32_t (&a)[4], std::uint64_t b) {
  static_assert(N / 2 <= Count);
  static_assert(N == 64 || N == 128, "no wgmma of this width is written out here");
  if constexpr (N == 64) LYCEUM_WGMMA_WORDS(64, 32, "%32, %33, %34, %35", "%36");
  if constexpr (N == 128) LYCEUM_WGMMA_WORDS(128, 64, "%64, %65, %66, %67", "%68");
}

}  // namespace lyceum::hopper

#undef LYCEUM_REGISTERS_16
#undef LYCEUM_REGISTERS_32
#undef LYCEUM_REGISTERS_48
#undef LYCEUM_REGISTERS_64
#undef LYCEUM_REGISTERS_80
#undef LYCEUM_REGISTERS_96
#undef LYCEUM_REGISTERS_112
#undef LYCEUM_REGISTERS_128
#undef LYCEUM_SUMS_4_FROM
#undef LYCEUM_SUMS_16_FROM
#undef LYCEUM_SUMS_32
#undef LYCEUM_SUMS_48
#undef LYCEUM_SUMS_64
#undef LYCEUM_SUMS_96
#undef LYCEUM_SUMS_128
#undef LYCEUM_WGMMA_TEXT
#undef LYCEUM_WGMMA
#undef LYCEUM_WGMMA_WORDS
