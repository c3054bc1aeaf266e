// Compares the index maps of the CUDA kernels for grouped products with the definitions of the PTX ISA.
#include "kernels/cuda/grouped_wgmma_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "kernels/cuda/grouped_mma_layout.h"

namespace lyceum::grouped {
namespace {

template <bool AlongK>
void check_mma_operand() {
  using Operand = MmaOperand<AlongK>;
  std::set<int> seen;
  for (int line = 0; line < Operand::lines; ++line) {
    for (int chunk = 0; chunk < Operand::chunks; ++chunk) seen.insert(Operand::offset(line, chunk));
  }
  EXPECT_EQ(static_cast<int>(seen.size()) * 16, MmaTiling::operand_bytes);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), MmaTiling::operand_bytes - 16);
  for (int line = 0; line < Operand::lines; line += 8) {
    for (int chunk = 0; chunk < Operand::chunks; ++chunk) {
      std::set<int> banks;
      for (int i = 0; i < 8; ++i) banks.insert(Operand::offset(line + i, chunk) % 128);
      EXPECT_EQ(banks.size(), 8u) << "ldmatrix of line " << line << ", chunk " << chunk << " meets bank conflicts";
    }
  }
}

TEST(CudaMmaLayout, EveryChunkHasItsPlaceAndLdmatrixItsBanks) {
  check_mma_operand<true>();
  check_mma_operand<false>();
}

TEST(CudaMmaLayout, RealignsAtEveryEvenByte) {
  unsigned char bytes[32];
  for (int i = 0; i < 32; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + 1);
  Chunk first, second;
  std::memcpy(first.word, bytes, 16);
  std::memcpy(second.word, bytes + 16, 16);
  for (unsigned shift = 0; shift < 16; shift += 2) {
    for (int count = 0; count <= 8; ++count) {
      unsigned char expected[16] = {};
      std::memcpy(expected, bytes + shift, static_cast<std::size_t>(2 * count));
      const Chunk actual = first_elements(realigned(first, second, shift), count);
      EXPECT_EQ(std::memcmp(actual.word, expected, 16), 0) << "shift " << shift << ", " << count << " elements";
    }
  }
}

/// Returns the byte that wgmma reads for element (index of m or n, k) of a 128-byte swizzled operand. Follows the
/// canonical layouts in "Shared memory matrix layout" of the PTX ISA; the swizzle is an exclusive or of bits 4-6 with
/// bits 7-9 of the address.
std::uint32_t wgmma_reads(std::uint64_t descriptor, bool along_k, std::uint32_t index, std::uint32_t k) {
  const auto field = [&](int bit) { return static_cast<std::uint32_t>(descriptor >> bit & 0x3fff) * 16; };
  const std::uint32_t start = field(0), leading = field(16), stride = field(32);
  const std::uint32_t plain = along_k ? start + index / 8 * stride + index % 8 * 128 + k * 2
                                      : start + index / 64 * leading + k / 8 * stride + k % 8 * 128 + index % 64 * 2;
  return plain ^ (plain >> 7 & 7) << 4;
}

/// Checks that wgmma reads each element of an operand from the byte to which TMA writes it.
template <bool AlongK>
void check_wgmma_operand(std::uint32_t extent) {
  const std::uint32_t stage = 3 * 1024;
  for (int begin = 0; begin < static_cast<int>(extent); begin += 64) {
    for (int step = 0; step < 4; ++step) {
      const std::uint64_t descriptor = WgmmaOperand<AlongK>::descriptor(stage, begin, step);
      EXPECT_EQ(descriptor >> 62, 1u);
      for (std::uint32_t index = static_cast<std::uint32_t>(begin); index < extent; ++index) {
        for (std::uint32_t k = 0; k < 16; ++k) {
          const std::uint32_t depth = static_cast<std::uint32_t>(step) * 16 + k;
          // An operand along k is one load of `extent` lines; otherwise there is one load of 64 lines per 64 indices.
          const std::uint32_t written = stage + (AlongK ? tma_swizzle(index, depth * 2)
                                                        : index / 64 * (64 * 128) + tma_swizzle(depth, index % 64 * 2));
          ASSERT_EQ(wgmma_reads(descriptor, AlongK, index - static_cast<std::uint32_t>(begin), k), written)
              << "index " << index << ", k " << depth;
        }
      }
    }
  }
}

TEST(CudaWgmmaLayout, DescriptorsFindWhatTmaLoads) {
  for (const std::uint32_t extent : {128u, 192u, 256u}) {
    check_wgmma_operand<true>(extent);
    check_wgmma_operand<false>(extent);
  }
}

/// Checks that the copies of a picked operand write each element of a stage once, to the byte to which TMA would write
/// it.
template <bool AlongK, int Extent>
void check_picked_copies() {
  using Copies = PickedCopies<AlongK, Extent>;
  std::set<std::uint32_t> written;
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < Copies::count; ++i) {
      for (int box = 0; box < Copies::boxes; ++box) {
        const auto line = static_cast<std::uint32_t>(Copies::line(thread, i));
        const auto element = static_cast<std::uint32_t>(Copies::element(thread, box));
        const std::uint32_t by_tma =
            AlongK ? tma_swizzle(line, element * 2) : element / 64 * (64 * 128) + tma_swizzle(line, element % 64 * 2);
        EXPECT_EQ(Copies::offset(thread, i, box), by_tma);
        written.insert(by_tma);
      }
    }
  }
  EXPECT_EQ(written.size(), Extent * 64u * 2 / 16);
  EXPECT_EQ(*written.rbegin(), Extent * 64u * 2 - 16);
  for (int warp = 0; warp < 128; warp += 32) {  // a warp copies whole lines of memory, without bank conflicts
    std::set<int> lines, places;
    for (int lane = 0; lane < 32; ++lane) {
      lines.insert(Copies::line(warp + lane, 0));
      places.insert(Copies::line(warp + lane, 0) * 8 + Copies::element(warp + lane, 0) / 8);
    }
    EXPECT_EQ(lines.size(), 4u);
    EXPECT_EQ(places.size(), 32u);
  }
}

TEST(CudaWgmmaLayout, PickedRowsLieAsTmaPutsThem) {
  check_picked_copies<true, CooperativeTiling::m>();
  check_picked_copies<false, CooperativeTiling::n>();
}

TEST(CudaWgmmaLayout, StagesFitAndBeginAtTheSwizzle) {
  EXPECT_EQ(CooperativeTiling::stages, 4);
  EXPECT_EQ(PingPongTiling::stages, 5);
  EXPECT_LE(CooperativeTiling::shared_bytes, 227 * 1024);
  EXPECT_LE(PingPongTiling::shared_bytes, 227 * 1024);
  EXPECT_EQ(CooperativeTiling::stage_bytes % 1024, 0);
  EXPECT_EQ(PingPongTiling::stage_bytes % 1024, 0);
  EXPECT_EQ(CooperativeTiling::a_bytes % 1024, 0);
  EXPECT_EQ(ClusteredTiling::stages, CooperativeTiling::stages);
  EXPECT_LE(ClusteredTiling::shared_bytes, 227 * 1024);
  EXPECT_EQ(ClusteredTiling::result_box % 1024, 0);
  EXPECT_EQ(ClusteredPingPongTiling::shared_bytes, PingPongTiling::shared_bytes);
}

TEST(CudaWgmmaLayout, AccumulatorsCoverTheTile) {
  std::set<int> seen;
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 128; ++i) seen.insert(wgmma_row(thread, i) * 256 + wgmma_col(thread, i));
  }
  EXPECT_EQ(seen.size(), 64u * 256u);
  // The PTX ISA shows the accumulators of m64nNk16 in a figure. For thread 0, d0 and d1 are in row 0, d2 and d3 in row
  // 8, d4 is in column 8.
  EXPECT_EQ(wgmma_row(0, 2), 8);
  EXPECT_EQ(wgmma_col(0, 4), 8);
  EXPECT_EQ(wgmma_row(33, 0), 16);
  EXPECT_EQ(wgmma_col(33, 1), 3);
}

TEST(CudaWgmmaLayout, QuadsTranspose) {
  std::uint32_t word[4][4], give[4][2];
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    for (std::uint32_t i = 0; i < 4; ++i) word[lane][i] = 10 * lane + i;
  }
  for (int lane = 0; lane < 4; ++lane) QuadTranspose(lane).give_far(word[lane], give[lane]);
  for (int lane = 0; lane < 4; ++lane) QuadTranspose(lane).take_far(word[lane], give[lane ^ 2]);
  for (int lane = 0; lane < 4; ++lane) QuadTranspose(lane).give_near(word[lane], give[lane]);
  for (int lane = 0; lane < 4; ++lane) QuadTranspose(lane).take_near(word[lane], give[lane ^ 1]);
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(word[lane][i], 10 * i + lane);
  }
}

}  // namespace
}  // namespace lyceum::grouped
