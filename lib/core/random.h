#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace lyceum {

/// Mixes all bits of `z`; a bijection [Steele et al. 2014].
constexpr std::uint64_t splitmix64(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// The block function of Philox 4x32-10 [Salmon et al. 2011]: `x` is the counter.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> x, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * x[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * x[2];
    x = {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return x;
}

/// Counter-based random numbers. A stream of numbers is named by (seed, purpose); each number is a pure function of
/// seed, purpose and index, so any rank can compute any slice. All functions read the same blocks, so their numbers are
/// not independent of each other. Give each use a different purpose.
class Philox {
 public:
  Philox(std::uint64_t seed, std::string_view purpose);

  /// Returns block `counter` of the stream: four random words.
  std::array<std::uint32_t, 4> block(std::uint64_t counter) const;
  /// Returns number `index`, uniform in [0, 1), from 53 random bits of block `index`.
  double uniform(std::uint64_t index) const;
  /// Returns number `index` of a standard normal distribution (Box–Muller on block index / 2).
  double normal(std::uint64_t index) const;
  /// Returns number `index`, uniform in [0, bound), bound > 0. The bias is negligible for bounds below 2^32.
  std::uint64_t below(std::uint64_t bound, std::uint64_t index) const;

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t purpose_;
};

/// A pseudo-random bijection of [0, size) that is determined by (seed, purpose); size ≤ 2^62. It needs no table: each
/// value is computed by a Feistel network on the next power of four, applied repeatedly until the result is below
/// `size` (cycle walking).
class Permutation {
 public:
  Permutation(std::uint64_t seed, std::string_view purpose, std::uint64_t size);
  /// Returns the image of `index`. Throws an Error unless index < size.
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  Philox random_;
  std::uint64_t size_;
  int half_bits_;
};

/// Sets values[i] = deviation · random.normal(first + i).
void fill_normal(std::span<float> values, double deviation, const Philox& random, std::uint64_t first);

}  // namespace lyceum
