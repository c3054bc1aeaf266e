#include <iterator>

#include "kernels/cuda/launch.cuh"
#include "kernels/hash_tokens.h"
#include "kernels/router_checks.h"

namespace lyceum {

namespace {

constexpr int hash_threads = 256;

template <class A>
__global__ void __launch_bounds__(hash_threads) hash_tokens(HashTokens<A> hash) {
  const auto tokens = static_cast<std::int64_t>(hash.tokens.size());
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * hash_threads;
  for (std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * hash_threads + threadIdx.x; t < tokens; t += stride) {
    const std::int32_t expert = hashed_expert(hash.tokens[t], hash.layer, hash.experts);
    hash.index[t] = expert;
    hash.gates[t] = 1;
    // Adding whole numbers atomically gives the same sum in any order.
    if (!hash.counts.empty()) atomicAdd(reinterpret_cast<unsigned long long*>(&hash.counts[expert]), 1ull);
    if (!hash.probability.empty()) atomicAdd(&hash.probability[expert], 1.0);
  }
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const HashTokens<A>& hash) {
  require_fitting(hash);
  start(stream, "HashTokens", hash_tokens<A>, blocks_for(std::ssize(hash.tokens), hash_threads), hash_threads, hash);
}

LYCEUM_HASH_TOKENS_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
