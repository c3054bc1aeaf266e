#include "kernels/cpu/tile_gemm.h"

#include "kernels/gemm_cases.h"
#include "kernels/native_bf16.h"

namespace lyceum {
namespace {

TEST(TileGemm, NativeBf16AgreesWithTheReference) {
  const CpuStream stream(2);
  if (!test::force_native_bf16(stream)) return;
  for (const auto& [m, k, n] : test::odd_sizes) {
    for (int flags = 0; flags < 8; ++flags) {
      const test::GemmCase c{m, k, n, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, flags % 3};
      const auto run_gemm = [&](const auto& gemm) { run(stream, gemm); };
      test::check_gemm<bfloat16>(c, run_gemm);
      test::check_gemm<bfloat16, float>(c, run_gemm);
    }
  }
}

TEST(Tiling, CoversTheResultWithTilesOfBoundedSize) {
  for (const std::int64_t m : {0, 1, 31, 512, 910, 8192}) {
    for (const std::int64_t n : {0, 1, 341, 682, 8192}) {
      for (const std::int64_t wanted : {1, 8, 64}) {
        const Tiling tiling = Tiling::of(m, n, wanted);
        EXPECT_LE(tiling.rows, 384);
        EXPECT_LE(tiling.cols, 768);
        EXPECT_GE(tiling.row_tiles * tiling.rows, m);
        EXPECT_LT((tiling.row_tiles - 1) * tiling.rows, std::max<std::int64_t>(m, 1));
        EXPECT_GE(tiling.col_tiles * tiling.cols, n);
        EXPECT_LT((tiling.col_tiles - 1) * tiling.cols, std::max<std::int64_t>(n, 1));
      }
    }
  }
}

}  // namespace
}  // namespace lyceum
