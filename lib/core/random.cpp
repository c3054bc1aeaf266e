#include "core/random.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace lyceum {

namespace {

constexpr std::uint64_t fnv_offset = 0xcbf29ce484222325u;
constexpr std::uint64_t fnv_prime = 0x100000001b3u;

std::uint64_t hash(std::string_view text) {
  std::uint64_t value = fnv_offset;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * fnv_prime;
  value ^= value >> 32;
  return value * fnv_prime;
}

}  // namespace

Philox::Philox(std::uint64_t seed, std::string_view purpose)
    : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}, purpose_(hash(purpose)) {}

// Inlines what it calls: the linker might take the copy of philox4x32 from a file that is not optimised.
[[gnu::flatten]] std::array<std::uint32_t, 4> Philox::block(std::uint64_t counter) const {
  return philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                     static_cast<std::uint32_t>(purpose_), static_cast<std::uint32_t>(purpose_ >> 32)},
                    key_);
}

double Philox::uniform(std::uint64_t index) const {
  const auto words = block(index);
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

namespace {

/// Two standard normal numbers of a block, by Box–Muller.
struct NormalPair {
  double radius, angle;
  explicit NormalPair(const std::array<std::uint32_t, 4>& words)
      : radius(std::sqrt(-2 * std::log((static_cast<double>(words[0]) + 0.5) * 0x1p-32))),
        angle(2 * std::numbers::pi * (static_cast<double>(words[1]) * 0x1p-32)) {}
  double even() const { return radius * std::cos(angle); }
  double odd() const { return radius * std::sin(angle); }
};

}  // namespace

double Philox::normal(std::uint64_t index) const {
  const NormalPair pair(block(index / 2));
  return index % 2 ? pair.odd() : pair.even();
}

std::uint64_t Philox::below(std::uint64_t bound, std::uint64_t index) const {
  require(bound > 0, "a random number below {}: the bound must be positive", bound);
  const auto words = block(index);
  const unsigned __int128 product = static_cast<unsigned __int128>(std::uint64_t{words[0]} << 32 | words[1]) * bound;
  return static_cast<std::uint64_t>(product >> 64);
}

Permutation::Permutation(std::uint64_t seed, std::string_view purpose, std::uint64_t size)
    : random_(seed, purpose), size_(size), half_bits_(1) {
  require(size <= std::uint64_t{1} << 62, "a permutation of {} elements: at most 2^62", size);
  while (half_bits_ < 31 && (std::uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  require(index < size_, "element {} of a permutation of {}", index, size_);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {
    std::uint64_t left = index >> half_bits_, right = index & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t mixed = left ^ (random_.block(round << 32 | right)[0] & mask);
      left = right;
      right = mixed;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);
  return index;
}

void fill_normal(std::span<float> values, double deviation, const Philox& random, std::uint64_t first) {
  const std::uint64_t end = first + values.size();
  const auto begin_block = static_cast<std::int64_t>(first / 2), end_block = static_cast<std::int64_t>((end + 1) / 2);
#pragma omp parallel for schedule(static) if (values.size() > 4096)
  for (std::int64_t block = begin_block; block < end_block; ++block) {
    const NormalPair pair(random.block(static_cast<std::uint64_t>(block)));
    const std::uint64_t even = 2 * static_cast<std::uint64_t>(block), odd = even + 1;
    if (even >= first) values[even - first] = static_cast<float>(deviation * pair.even());
    if (odd < end) values[odd - first] = static_cast<float>(deviation * pair.odd());
  }
}

}  // namespace lyceum
