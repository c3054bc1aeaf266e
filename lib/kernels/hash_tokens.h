#pragma once

#include <cstdint>
#include <span>

#include "core/random.h"
#include "core/stream.h"
#include "kernels/instances.h"

namespace lyceum {

/// splitmix64(token + layer · 2³²) mod experts: the expert of a token in a layer that chooses by the token alone.
constexpr std::int32_t hashed_expert(std::int32_t token, std::int64_t layer, std::int64_t experts) {
  const std::uint64_t key = (static_cast<std::uint64_t>(layer) << 32) + static_cast<std::uint32_t>(token);
  return static_cast<std::int32_t>(splitmix64(key) % static_cast<std::uint64_t>(experts));
}

/// Choices that go by the tokens alone, a fixed expert each [Roller et al. 2021]: gates are 1, and so is the
/// probability of the chosen. A is float or double.
template <class A>
struct HashTokens {
  std::span<const std::int32_t> tokens;
  std::int64_t layer, experts;
  std::span<std::int32_t> index;   // [tokens]
  std::span<A> gates;              // [tokens]
  std::span<std::int64_t> counts;  // [experts], or none: += the tokens of each
  std::span<double> probability;   // [experts], or none: likewise
};

template <class A>
void run(const CpuStream& stream, const HashTokens<A>& hash);
template <class A>
void run(const CudaStream& stream, const HashTokens<A>& hash);

#define LYCEUM_HASH_TOKENS_KERNELS(INSTANCE) LYCEUM_ACCUMULATORS(INSTANCE, HashTokens)

}  // namespace lyceum
