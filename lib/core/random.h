#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace lyceum {

/// The block function of Philox 4x32-10 [Salmon et al. 2011].
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// Counter-based random numbers: element `index` of the stream named by (seed, purpose) is a pure function of the
/// three, so any rank can make any slice.
class Philox {
 public:
  Philox(std::uint64_t seed, std::string_view purpose);

  /// Four random words: block `counter` of the stream.
  std::array<std::uint32_t, 4> block(std::uint64_t counter) const;
  /// In [0, 1): 53 random bits.
  double uniform(std::uint64_t index) const;
  /// Standard normal (Box–Muller on block index / 2).
  double normal(std::uint64_t index) const;
  /// In [0, bound), bound > 0; without bias worth naming for bounds below 2^32.
  std::uint64_t below(std::uint64_t bound, std::uint64_t index) const;

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t purpose_;
};

/// A bijection of [0, size), size at most 2^62, chosen by (seed, purpose), evaluated a point at a time without a table:
/// a Feistel network on the next power of four, walked until it lands inside.
class Permutation {
 public:
  Permutation(std::uint64_t seed, std::string_view purpose, std::uint64_t size);
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  Philox random_;
  std::uint64_t size_;
  int half_bits_;
};

/// values[i] = deviation · normal(first + i).
void fill_normal(std::span<float> values, double deviation, const Philox& random, std::uint64_t first);

}  // namespace lyceum
