#include "kernels/digest.h"

#include <cstring>
#include <set>

#include "core/device_table.h"
#include "support/grid.h"
#include "support/launch_on.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

template <class T>
std::vector<std::uint64_t> digests_of(const std::vector<T>& x, int threads = 1) {
  const Stream stream = tests_run_on_gpu() ? tested_stream() : Stream(CpuStream(threads));
  const std::vector<std::uint64_t> poisoned(static_cast<std::size_t>(flat_blocks_of(std::ssize(x))), 77);
  const Tensor given = table_of(stream, x), made = table_of(stream, poisoned);
  launch(stream, DigestBlocks<T>{.x = rows_of<T>(given),
                                 .digests = {reinterpret_cast<std::uint64_t*>(made.raw()), poisoned.size()}});
  std::vector<std::uint64_t> digests(poisoned.size());
  copy_to_host(stream, digests.data(), made.raw(), made.bytes());
  return digests;
}

/// Returns the digest by the definition in the header, word by word.
std::uint64_t by_hand(const void* bytes, std::size_t words, std::size_t word_size) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < words; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + i * word_size, word_size);
    sum += std::uint64_t{word} * static_cast<std::uint32_t>((2 * i + 1) * 0x9e3779b1u);
  }
  return sum;
}

template <class T>
class DigestTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(DigestTest, Types);

TYPED_TEST(DigestTest, IsTheSumOfItsWords) {
  using T = TypeParam;
  constexpr std::size_t word = std::min<std::size_t>(sizeof(T), 4);
  for (const std::int64_t size : {0, 1, 5, 1023, 1024, 1025, 5000}) {
    const std::vector<T> x = Grid<T>::random(1, size, "x").values;
    const std::vector<std::uint64_t> digests = digests_of(x, 2);
    ASSERT_EQ(std::ssize(digests), flat_blocks_of(size));
    for (std::size_t b = 0; b < digests.size(); ++b) {
      const std::size_t begin = b * flat_block, count = std::min<std::size_t>(flat_block, x.size() - begin);
      EXPECT_EQ(digests[b], by_hand(x.data() + begin, count * sizeof(T) / word, word)) << size << " block " << b;
    }
  }
}

TYPED_TEST(DigestTest, EveryBitCounts) {
  using T = TypeParam;
  std::vector<T> x = Grid<T>::random(1, 1030, "x").values;
  const std::vector<std::uint64_t> before = digests_of(x);
  std::set<std::uint64_t> seen{before[0]};
  for (std::size_t e : {0, 1, 511, 1023}) {
    for (std::size_t bit = 0; bit < 8 * sizeof(T); ++bit) {
      auto* const byte = reinterpret_cast<unsigned char*>(&x[e]) + bit / 8;
      *byte = static_cast<unsigned char>(*byte ^ (1u << bit % 8));
      const std::vector<std::uint64_t> now = digests_of(x);
      EXPECT_TRUE(seen.insert(now[0]).second) << "element " << e << " bit " << bit;
      EXPECT_EQ(now[1], before[1]);
      *byte = static_cast<unsigned char>(*byte ^ (1u << bit % 8));
    }
  }
}

TEST(DigestOfBytes, IsTheSumOfItsWordsAndOfWhatIsBehindThem) {
  const std::vector<float> x = Grid<float>::random(1, 40, "x").values;
  for (std::size_t count = 0; count <= 4 * x.size(); ++count) {
    std::vector<std::byte> bytes(count + 8);
    std::memcpy(bytes.data(), x.data(), count);
    EXPECT_EQ(digest_of_bytes(x.data(), count), by_hand(bytes.data(), count / 4 + 1, 4)) << count;
  }
}

}  // namespace
}  // namespace lyceum
