#pragma once

#include <cstdint>
#include <span>

#include "core/random.h"
#include "core/stream.h"
#include "kernels/instances.h"

namespace lyceum {

/// Returns the expert of a token in a layer with hash routing: splitmix64(token + layer · 2³²) mod experts.
constexpr std::int32_t hashed_expert(std::int32_t token, std::int64_t layer, std::int64_t experts) {
  const std::uint64_t key = (static_cast<std::uint64_t>(layer) << 32) + static_cast<std::uint32_t>(token);
  return static_cast<std::int32_t>(splitmix64(key) % static_cast<std::uint64_t>(experts));
}

/// Hash routing: every token of the vocabulary has a fixed expert, see hashed_expert() [Roller et al. 2021]. All gates
/// and the probabilities of the chosen experts are 1. A is float or double.
template <class A>
struct HashTokens {
  std::span<const std::int32_t> tokens;  // [tokens]
  std::int64_t layer, experts;
  std::span<std::int32_t> index;   // [tokens]
  std::span<A> gates;              // [tokens]
  std::span<std::int64_t> counts;  // [experts], or none: += number of tokens of each expert
  std::span<double> probability;   // [experts], or none: += the same number
};

template <class A>
void run(const CpuStream& stream, const HashTokens<A>& hash);
template <class A>
void run(const CudaStream& stream, const HashTokens<A>& hash);

#define LYCEUM_HASH_TOKENS_KERNELS(INSTANCE) LYCEUM_ACCUMULATORS(INSTANCE, HashTokens)

}  // namespace lyceum
